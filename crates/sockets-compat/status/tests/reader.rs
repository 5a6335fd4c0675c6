//! The reader among files that mean it no good: it ends, and says what is wrong.

use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use landfall_socket_status::read::{Reader, View};
use landfall_socket_status::{
    Explanation, FILE_LEN, Header, ProcessName, RECORD_LEN, RECORDS, Reason, Record, Role,
    Transport, WORDS, start_in_stat,
};
use proptest::prelude::*;

/// Shared memory of a test's own, with the folder of this user.
struct Scratch {
    root: PathBuf,
    folder: PathBuf,
}

impl Scratch {
    fn new(name: &str) -> Self {
        let root = std::env::temp_dir();
        let root = root.join(format!("landfall-reader-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        let network = fs::metadata("/proc/thread-self/ns/net").unwrap().ino();
        fs::create_dir(&root).unwrap();
        let user = fs::metadata(&root).unwrap().uid();
        let name = format!("landfall-sockets-{user:08x}-{}-{:08x}", &boot[..8], network as u32);
        let folder = root.join(name);
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, Permissions::from_mode(0o700)).unwrap();
        Self { root, folder }
    }

    fn look(&self) -> View {
        Reader::at(&self.root).unwrap().look().unwrap()
    }

    fn path_of(&self, name: ProcessName) -> PathBuf {
        self.folder.join(Path::new(std::ffi::OsStr::from_bytes(&name.to_bytes())))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.root).unwrap();
    }
}

/// Of which nobody here knows whether it runs.
const ELSEWHERE: ProcessName = ProcessName { process: 7, start: 1, namespace: 1 };

fn bytes_of(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn header(used: u32) -> [u64; WORDS] {
    let (version, program) = ([0, 1, 0], b"liar".to_vec());
    let header = Header {
        used,
        mapped_at: 1 << 20,
        unseen: 3,
        version,
        counters: Default::default(),
        program,
    };
    header.to_words()
}

fn record() -> Record {
    Record {
        role: Role::Connector,
        transport: Transport::Memory,
        explanation: Explanation { reason: Reason::BothHere, detail: 0 },
        is_for_carrier: false,
        user: 0,
        serial: 1,
        began_ms: 1,
        name: [1; Record::NAME],
    }
}

#[test]
fn a_record_of_another_namespace_is_shown_and_its_memory_is_missing() {
    let scratch = Scratch::new("elsewhere");
    let file = [bytes_of(&header(1)), bytes_of(&record().to_words())].concat();
    fs::write(scratch.path_of(ELSEWHERE), file).unwrap();
    let view = scratch.look();
    assert!(view.faults.is_empty(), "{:?}", view.faults);
    let process = &view.processes[0];
    assert_eq!((process.program.as_str(), process.unseen), ("liar", 3));
    assert!(!process.is_in_this_namespace);
    assert_eq!(process.connections[0].record, Record { user: process.user, ..record() });
    assert_eq!((process.connections[0].sent, process.connections[0].received), (None, None));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_file_gives_rows_or_a_fault(
        has_header: bool,
        used: u32,
        bytes in prop::collection::vec(any::<u8>(), 0..8 * RECORD_LEN),
        states in prop::collection::vec((0_u64..6, 0_u64..4, 0_u64..40), 0..8),
    ) {
        let scratch = Scratch::new("any");
        let mut file = if has_header { bytes_of(&header(used)) } else { Vec::new() };
        let behind = file.len();
        file.extend(bytes);
        // Some that look as if they were records.
        for (nth, (transport, role, reason)) in states.iter().enumerate() {
            let at = behind + nth * RECORD_LEN;
            if let Some(place) = file.get_mut(at..at + 16) {
                place[0] &= !1;
                let state = transport | role << 8 | reason << 32;
                place[8..].copy_from_slice(&state.to_ne_bytes());
            }
        }
        fs::write(scratch.path_of(ELSEWHERE), &file).unwrap();
        let view = scratch.look();
        prop_assert!(view.connections().count() <= file.len() / RECORD_LEN);
        prop_assert!(view.processes.len() + view.faults.len() <= 1);
        for (_, connection) in view.connections() {
            prop_assert!(!connection.record.explanation.to_string().is_empty());
            prop_assert!(!connection.local().to_string().is_empty());
        }
    }
}

#[test]
fn a_file_without_end_is_read_as_far_as_there_can_be_records() {
    let scratch = Scratch::new("endless");
    let path = scratch.path_of(ELSEWHERE);
    let mut words = header(u32::MAX);
    words[1] = u64::MAX;
    fs::write(&path, bytes_of(&words)).unwrap();
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(1 << 40).unwrap();
    let view = scratch.look();
    assert_eq!((view.processes.len(), view.connections().count()), (1, 0));
    assert_eq!(FILE_LEN, (RECORDS + 1) * RECORD_LEN);
}

#[test]
fn files_without_number_are_read_as_far_as_there_can_be_connections() {
    let scratch = Scratch::new("many");
    let mut words = header(u32::MAX);
    words[1] = u64::MAX;
    for process in 0..80 {
        let path = scratch.path_of(ProcessName { process, ..ELSEWHERE });
        fs::write(&path, bytes_of(&words)).unwrap();
        fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(FILE_LEN as u64).unwrap();
    }
    let view = scratch.look();
    assert_eq!((view.processes.len(), view.faults.len()), (64, 16));
    assert!(view.faults[0].contains("more records than there can be connections"));
}

#[test]
fn a_user_tells_of_itself_alone() {
    let scratch = Scratch::new("user");
    let claimed = Record { user: 4711, ..record() };
    let file = [bytes_of(&header(1)), bytes_of(&claimed.to_words())].concat();
    fs::write(scratch.path_of(ELSEWHERE), file).unwrap();
    let view = scratch.look();
    let user = view.processes[0].user;
    // Root's programs may have become another's.
    let shown = if user == 0 { 4711 } else { user };
    assert_eq!(view.processes[0].connections[0].record.user, shown);
}

#[test]
fn another_version_is_a_fault_that_names_the_file() {
    let scratch = Scratch::new("version");
    fs::write(scratch.path_of(ELSEWHERE), bytes_of(&[7; WORDS])).unwrap();
    let view = scratch.look();
    assert!(view.faults[0].contains("/process-00000007-"), "{:?}", view.faults);
    assert!(view.faults[0].contains("of another version of the library"), "{:?}", view.faults);
}

#[test]
fn what_is_no_file_is_neither_followed_nor_waited_for() {
    let scratch = Scratch::new("kinds");
    let other = |process| scratch.path_of(ProcessName { process, ..ELSEWHERE });
    let victim = scratch.root.join("victim");
    fs::write(&victim, [bytes_of(&header(1)), bytes_of(&record().to_words())].concat()).unwrap();
    symlink(&victim, other(1)).unwrap();
    fs::create_dir(other(2)).unwrap();
    let fifo = std::process::Command::new("mkfifo").arg(other(3)).status().unwrap();
    assert!(fifo.success());
    let view = scratch.look();
    assert_eq!((view.processes.len(), view.faults.len()), (0, 3), "{:?}", view.faults);
}

#[test]
fn a_folder_that_others_may_enter_is_not_looked_into() {
    let scratch = Scratch::new("open");
    fs::write(scratch.path_of(ELSEWHERE), bytes_of(&header(0))).unwrap();
    fs::set_permissions(&scratch.folder, Permissions::from_mode(0o755)).unwrap();
    let view = scratch.look();
    assert!(view.processes.is_empty());
    assert!(view.faults[0].ends_with("it is open to others (mode 0755): remove it"));
    let elsewhere = scratch.root.join("elsewhere");
    fs::rename(&scratch.folder, &elsewhere).unwrap();
    symlink(&elsewhere, &scratch.folder).unwrap();
    assert_eq!(scratch.look().faults.len(), 1, "a link is not followed");
    fs::remove_file(&scratch.folder).unwrap();
}

#[test]
fn what_ended_processes_left_is_removed_and_then_the_folder() {
    let scratch = Scratch::new("ended");
    let namespace = fs::metadata("/proc/self/ns/pid").unwrap().ino();
    let process = std::process::id();
    let start = start_in_stat(&fs::read("/proc/self/stat").unwrap()).unwrap();
    let own = ProcessName { process, start, namespace };
    let earlier = ProcessName { start: start - 1, ..own };
    // This process maps no such file: it is as after `exec`.
    for name in [own, earlier] {
        fs::write(scratch.path_of(name), bytes_of(&header(0))).unwrap();
    }
    fs::write(scratch.path_of(ELSEWHERE), bytes_of(&header(0))).unwrap();
    let view = scratch.look();
    assert_eq!((view.removed, view.processes.len()), (2, 1), "{:?}", view.faults);
    assert!(scratch.path_of(ELSEWHERE).exists(), "nobody knows whether that runs");
    fs::remove_file(scratch.path_of(ELSEWHERE)).unwrap();
    assert_eq!(scratch.look().removed, 1);
    assert!(!scratch.folder.exists());
}

#[test]
fn a_name_without_a_connection_is_removed() {
    let scratch = Scratch::new("names");
    let digits: String = [2_u8; Record::NAME].iter().map(|byte| format!("{byte:02x}")).collect();
    for name in [digits.clone(), format!("to-{digits}"), "something".to_owned()] {
        fs::write(scratch.folder.join(name), "").unwrap();
    }
    assert_eq!(scratch.look().removed, 2);
    assert!(scratch.folder.join("something").exists());
}
