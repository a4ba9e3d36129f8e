//! Whole arrays cut into the shards of devices, and put together again, as bytes.

use crate::partition::axes::DeviceAxes;
use crate::partition::spec::Spec;

/// Where a device's shard lies in the whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Its sizes, with padding.
    pub dims: Vec<i64>,
    /// Where it begins in each dimension.
    pub starts: Vec<i64>,
    /// How much of it is not padding.
    pub valid: Vec<i64>,
}

/// The shard of logical device `device` of an array of those sizes.
pub fn shard_of(axes: &DeviceAxes, spec: &Spec, dims: &[i64], device: i64) -> Shard {
    let local = spec.local_dims(axes, dims);
    let starts: Vec<i64> =
        local.iter().zip(&spec.dims).map(|(&size, list)| axes.coordinate(device, list) * size).collect();
    let valid = local.iter().zip(&starts).zip(dims).map(|((&size, &start), &n)| (n - start).clamp(0, size)).collect();
    Shard { dims: local.to_vec(), starts, valid }
}

/// The bytes of a shard of `whole`, padded with zeros; elements are of `width` bytes.
pub fn cut(whole: &[u8], dims: &[i64], width: usize, shard: &Shard) -> Vec<u8> {
    let count: i64 = shard.dims.iter().product();
    let mut bytes = vec![0; count as usize * width];
    rows(dims, shard, |whole_at, shard_at, length| {
        let (from, to) = (whole_at * width, shard_at * width);
        bytes[to..to + length * width].copy_from_slice(&whole[from..from + length * width]);
    });
    bytes
}

/// Puts a shard's bytes into `whole`.
pub fn paste(whole: &mut [u8], dims: &[i64], width: usize, shard: &Shard, bytes: &[u8]) {
    rows(dims, shard, |whole_at, shard_at, length| {
        let (to, from) = (whole_at * width, shard_at * width);
        whole[to..to + length * width].copy_from_slice(&bytes[from..from + length * width]);
    });
}

/// Calls `f` with where each row of a shard's valid elements begins in the whole and in the shard, and its length.
fn rows(dims: &[i64], shard: &Shard, mut f: impl FnMut(usize, usize, usize)) {
    if shard.valid.contains(&0) {
        return;
    }
    let rank = dims.len();
    if rank == 0 {
        return f(0, 0, 1);
    }
    let mut index = vec![0i64; rank - 1];
    loop {
        let (mut whole_at, mut shard_at) = (0, 0);
        for d in 0..rank {
            let i = if d + 1 < rank { index[d] } else { 0 };
            whole_at = whole_at * dims[d] + shard.starts[d] + i;
            shard_at = shard_at * shard.dims[d] + i;
        }
        f(whole_at as usize, shard_at as usize, shard.valid[rank - 1] as usize);
        let mut d = rank - 1;
        loop {
            if d == 0 {
                return;
            }
            d -= 1;
            index[d] += 1;
            if index[d] < shard.valid[d] {
                break;
            }
            index[d] = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::axes::AxisList;

    #[test]
    fn shards_make_the_whole_again_though_the_last_are_not_full() {
        let axes = DeviceAxes::new(4, std::iter::empty(), &[]);
        let spec = Spec::tiled([AxisList::from_slice(&[0]), AxisList::from_slice(&[1])]);
        let dims = [3, 5];
        let whole: Vec<u8> = (0..15).collect();
        let mut again = vec![0; 15];
        for device in 0..4 {
            let shard = shard_of(&axes, &spec, &dims, device);
            assert_eq!(shard.dims, [2, 3]);
            let bytes = cut(&whole, &dims, 1, &shard);
            assert_eq!(bytes.len(), 6);
            paste(&mut again, &dims, 1, &shard, &bytes);
        }
        assert_eq!(again, whole);
    }
}
