//! Codes for files and the command line.

super::codes! {
    801 CANNOT_READ "a file cannot be read",
        "The file does not exist, is a directory, may not be read, or the medium failed.",
        "hloom verify missing.hlo";
    802 CANNOT_WRITE "a file cannot be written",
        "The folder does not exist or may not be written to, or the disk is full. What was there before is still there: \
         output is written to a new file first, which takes the old one's place when it is complete.",
        "hloom fmt m.hlo -o /no/such/folder/m.hlo";
    803 EMPTY_FILE "a file is empty",
        "There is no module in the file: it has no bytes, or nothing but white space.",
        "hloom verify - < /dev/null";
    804 NO_MODULE "a file that lies beside a module in a dump",
        "A compiler that dumps a module writes what it made of it, too: here is its buffer assignment, which says where \
         each value of the module lies. There is no module in it. Give the module, and the assignment with `--check`.",
        "hloom verify module_0001.f.cpu_after_optimizations-buffer-assignment.txt";
    890 INTERNAL "a bug in hloom",
        "Something went wrong inside hloom, whatever the input was: that is never the input's fault. A reproducer was \
         written; please report it.",
        "";
}
