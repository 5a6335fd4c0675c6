//! Devices against a naive one.

use std::fs::OpenOptions;

use landfall_storage::device::{BlockDevice, FileDevice, MemoryDevice, Volatile};
use proptest::prelude::*;

use crate::support::Folder;

const SIZE: u64 = 1 << 20;

#[derive(Clone, Debug)]
enum Act {
    Write(u64, u64, u8),
    Zero(u64, u64, bool),
    Trim(u64, u64),
    Resize(u64),
}

fn act() -> impl Strategy<Value = Act> {
    let range = || (0..SIZE, 0..300_000u64);
    prop_oneof![
        4 => (range(), any::<u8>()).prop_map(|((at, len), byte)| Act::Write(at, len, byte)),
        2 => (range(), any::<bool>()).prop_map(|((at, len), punch)| Act::Zero(at, len, punch)),
        1 => range().prop_map(|(at, len)| Act::Trim(at, len)),
        1 => (1..SIZE).prop_map(Act::Resize),
    ]
}

/// Does the same to a device and to bytes, and compares them after each act.
fn check(device: &dyn BlockDevice, acts: &[Act]) {
    let mut naive = vec![0u8; device.size() as usize];
    for act in acts {
        let size = naive.len() as u64;
        let within = |at: u64, len: u64| (at.min(size), len.min(size - at.min(size)));
        match *act {
            Act::Write(at, len, byte) => {
                let (at, len) = within(at, len);
                device.write(at, &vec![byte; len as usize]).unwrap();
                naive[at as usize..(at + len) as usize].fill(byte);
            }
            Act::Zero(at, len, punch) => {
                let (at, len) = within(at, len);
                device.write_zeroes(at, len, punch, false).unwrap();
                naive[at as usize..(at + len) as usize].fill(0);
            }
            Act::Trim(at, len) => {
                let (at, len) = within(at, len);
                device.trim(at, len).unwrap();
                // What was trimmed may read as anything: here it is looked at.
                device.read(at, &mut naive[at as usize..(at + len) as usize]).unwrap();
            }
            Act::Resize(size) => {
                if device.resize(size).is_ok() {
                    naive.resize(size as usize, 0);
                }
            }
        }
        let mut bytes = vec![1; naive.len()];
        device.read(0, &mut bytes).unwrap();
        assert!(bytes == naive, "after {act:?}");
        let extents = device.extents(0, naive.len() as u64, 1000).unwrap();
        let mut at = 0;
        for extent in extents {
            let end = at + extent.len as usize;
            assert!(!extent.is_zero || naive[at..end].iter().all(|byte| *byte == 0), "{extent:?}");
            at = end;
        }
        assert_eq!(at, naive.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn devices_do_what_a_naive_one_does(acts in prop::collection::vec(act(), 1..12)) {
        check(&MemoryDevice::new(SIZE), &acts);
        check(&Volatile::new(SIZE as usize), &acts);
        let folder = Folder::new();
        let path = folder.disk("disk.img", SIZE);
        check(&FileDevice::open(&path, false).unwrap(), &acts);
    }
}

#[test]
fn a_read_only_file_is_not_written() {
    let folder = Folder::new();
    let path = folder.disk("disk.img", 4096);
    let device = FileDevice::open(&path, true).unwrap();
    assert!(device.write(0, b"x").is_err());
    assert!(device.resize(0).is_err());
    assert_eq!(std::fs::read(&path).unwrap(), [0; 4096]);
    assert!(FileDevice::open(&folder.file(""), true).is_err(), "a folder is no device");
    let none = FileDevice::open(&folder.file("none"), true).map(drop).unwrap_err();
    assert_eq!(none.kind(), std::io::ErrorKind::NotFound, "{none}");
    assert!(!folder.file("none").exists());
}

/// Others may make the file shorter: a read fails then, and nothing is made up.
#[test]
fn a_file_that_was_cut_gives_an_error() {
    let folder = Folder::new();
    let path = folder.disk("disk.img", 8192);
    let device = FileDevice::open(&path, false).unwrap();
    OpenOptions::new().write(true).open(&path).unwrap().set_len(4096).unwrap();
    assert!(device.read(4096, &mut [0; 512]).is_err());
    assert!(!device.read_if_cached(4096, &mut [0; 512]).unwrap());
}
