//! Files that are read into lent memory and written from it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::memory::{Memory, Regions, Rights};

const RW: Rights = Rights::from_bits(3);

/// A file without a name, with these bytes.
fn file(bytes: &[u8]) -> File {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let (process, nth) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let path = std::env::temp_dir().join(format!("landfall-memory-files-{process}-{nth}"));
    let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    file.write_all_at(bytes, 0).unwrap();
    file
}

fn numbered(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 256 * 13 + 1) as u8).collect()
}

#[test]
fn files_are_read_into_lent_memory_as_far_as_the_cache_has_them() {
    let (bytes, regions) = (numbered(100_000), Regions::new(2));
    let file = file(&bytes);
    let region = regions.lend(Memory::from_bytes(&[9; 150_000]), RW).unwrap();
    let pinned = regions.pin(region).unwrap();
    let mut after = vec![0; 150_000];
    for (offset, at, len) in
        [(0, 0, 1), (1, 3, 4096), (4095, 8, 99), (99_990, 77, 500), (100_000, 0, 9)]
    {
        pinned.copy_in(&region.span(0, 150_000), &[9; 150_000]).unwrap();
        let count = pinned.read_cached(&file, offset, &region.span(at, len)).unwrap();
        // A file system need not say what is in its cache, and a page can go at any time.
        let most = (bytes.len() as u64 - offset).min(len.into()) as usize;
        assert!(count <= most, "{count} of {most}");
        let mut expected = vec![9; 150_000];
        let (offset, at) = (offset as usize, at as usize);
        expected[at..at + count].copy_from_slice(&bytes[offset..offset + count]);
        pinned.copy_out(&region.span(0, 150_000), &mut after).unwrap();
        assert!(after == expected, "{len} bytes of {offset} at {at}");
    }
    // What is not of the region, and what may not be written, is not touched.
    assert!(pinned.read_cached(&file, 0, &region.span(149_999, 2)).is_err());
    assert!(pinned.read_cached(&file, u64::MAX, &region.span(0, 1)).is_err());
    let sealed = regions.lend(Memory::zeroed(8), Rights::READ).unwrap();
    let sealed = (regions.pin(sealed).unwrap(), sealed.span(0, 8));
    assert!(sealed.0.read_cached(&file, 0, &sealed.1).is_err());
    regions.revoke(region).unwrap();
    assert!(pinned.read_cached(&file, 0, &region.span(0, 1)).is_err());
}

#[test]
fn lent_memory_is_written_to_files() {
    let (bytes, regions) = (numbered(100_000), Regions::new(2));
    let file = file(&[]);
    let region = regions.lend(Memory::from_bytes(&bytes), RW).unwrap();
    let pinned = regions.pin(region).unwrap();
    pinned.write_to_file(&file, 10, &region.span(3, 99_990)).unwrap();
    pinned.write_to_file(&file, 0, &region.span(5, 0)).unwrap();
    let mut written = vec![0; 99_990];
    file.read_exact_at(&mut written, 10).unwrap();
    assert!(written == bytes[3..99_993]);
    assert_eq!(file.metadata().unwrap().len(), 100_000);
    // Errors are those of the file, and of the region.
    let full = File::options().write(true).open("/dev/full").unwrap();
    let error = pinned.write_to_file(&full, 0, &region.span(0, 100)).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
    assert!(pinned.write_to_file(&file, 0, &region.span(99_999, 2)).is_err());
    let secret = regions.lend(Memory::zeroed(8), Rights::WRITE).unwrap();
    let (secret, span) = (regions.pin(secret).unwrap(), secret.span(0, 8));
    let refused = secret.write_to_file(&file, 0, &span).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::Other);
}
