//! The heap of a command: on huge pages, and grown in large steps.
//!
//! A command fills some megabytes and ends, so every page that it touches is a page fault; with small pages these are a
//! fifth to a third of the time of commands that take milliseconds. Kept true: what is done here are hints to the
//! allocator and the kernel; where they are not taken, nothing but the time differs.

#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
mod hints {
    const MIB: usize = 1 << 20;
    /// The memory that the C library sets aside for the heap of a thread, which begins at a multiple of as much.
    const THREAD_HEAP: usize = 64 * MIB;

    /// Has heaps grow in steps that huge pages fit in. To be called before there is a second thread.
    pub(crate) fn grow_in_large_steps() {
        // Large blocks are mapped by themselves up to a size that follows what is freed; a heap whose growth is set no longer
        // does that, so they begin where they would come to.
        let settings =
            [(libc::M_TOP_PAD, 16 * MIB), (libc::M_MMAP_THRESHOLD, 32 * MIB), (libc::M_TRIM_THRESHOLD, THREAD_HEAP)];
        for (setting, bytes) in settings {
            // SAFETY: sets a number of the allocator's, while no other thread uses it.
            unsafe { libc::mallopt(setting, bytes as i32) };
        }
    }

    /// Asks for huge pages for the heap of this thread.
    pub(crate) fn use_huge_pages() {
        // Smaller blocks may be ones that the thread was handed by another, and freed. The compiler is not to leave it out.
        let block = std::hint::black_box(Box::new([0u8; 4096]));
        let heap = (&raw const *block).map_addr(|a| a & !(THREAD_HEAP - 1)).cast_mut().cast();
        // SAFETY: neither changes what memory holds, or whether it can be used, whatever lies there. The second is for what
        // the thread has touched on its way here; few programs need more than that first page.
        unsafe {
            libc::madvise(heap, THREAD_HEAP, libc::MADV_HUGEPAGE);
            libc::madvise(heap, 2 * MIB, libc::MADV_COLLAPSE);
        }
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64")))]
mod hints {
    pub(crate) fn grow_in_large_steps() {}
    pub(crate) fn use_huge_pages() {}
}

pub(crate) use hints::{grow_in_large_steps, use_huge_pages};

#[cfg(all(test, target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
mod tests {
    /// The flags of the mapping that has `address`, as the kernel lists them.
    fn flags(address: usize) -> String {
        let maps = std::fs::read_to_string("/proc/self/smaps").expect("the kernel lists mappings");
        let mut inside = false;
        for line in maps.lines() {
            let range = line.split_once(' ').and_then(|(range, _)| range.split_once('-'));
            let bounds = range.map(|(a, b)| (usize::from_str_radix(a, 16), usize::from_str_radix(b, 16)));
            if let Some((Ok(start), Ok(end))) = bounds {
                inside = (start..end).contains(&address);
            } else if inside && let Some(flags) = line.strip_prefix("VmFlags:") {
                return flags.to_owned();
            }
        }
        String::new()
    }

    #[test]
    fn what_a_command_allocates_is_where_huge_pages_may_be() {
        if !std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
            return;
        }
        let command = || {
            super::use_huge_pages();
            let block = std::hint::black_box(Box::new([0u8; 4096]));
            flags((&raw const *block).addr())
        };
        let flags = std::thread::spawn(command).join().expect("a thread");
        assert!(flags.split_whitespace().any(|f| f == "hg"), "{flags}");
    }
}
