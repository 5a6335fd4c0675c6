//! Sessions of iSCSI: logins, and messages at their limits.

use landfall_scsi::iscsi::{Account, Chap, Config, ProtocolError, Session};
use landfall_scsi::{Disk, Lun, Target};

const NAME: &str = "iqn.2026-01.example:test";

/// A head with its data.
fn message(opcode: u8, flags: u8, fields: &[(usize, u32)], data: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 48];
    (bytes[0], bytes[1]) = (opcode, flags);
    bytes[5..8].copy_from_slice(&(data.len() as u32).to_be_bytes()[1..]);
    for (at, value) in fields {
        bytes[*at..*at + 4].copy_from_slice(&value.to_be_bytes());
    }
    bytes.extend_from_slice(data);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn target() -> Target {
    let mut target = Target::new(NAME);
    target.add(Lun::new(0).unwrap(), Disk::of_bytes("serial", 1 << 20));
    target
}

fn session() -> Session {
    Session::new(Config { portal: Some("192.0.2.1:3260".into()), ..Config::default() })
}

/// The class and detail of a login's answer, and its text.
fn log_in(text: &str) -> (Session, Target, [u8; 2], String) {
    let (mut session, mut target) = (session(), target());
    let login = message(0x43, 0x87, &[(16, 1), (24, 5)], text.as_bytes());
    let handled = session.handle(&login, &mut target);
    let answer = session.poll_output().expect("it is answered");
    assert_eq!(handled.is_ok(), answer[36..38] == [0, 0]);
    let text = String::from_utf8_lossy(&answer[48..]).into_owned();
    (session, target, [answer[36], answer[37]], text)
}

#[test]
fn a_login_agrees_on_less_than_both_have() {
    let text = format!(
        "InitiatorName=iqn.x:y\0TargetName={NAME}\0HeaderDigest=CRC32C,None\0DataDigest=None\0\
         InitialR2T=No\0ImmediateData=Yes\0MaxBurstLength=16776192\0FirstBurstLength=512\0\
         ErrorRecoveryLevel=2\0MaxConnections=8\0X-other=1\0"
    );
    let (session, _, status, text) = log_in(&text);
    assert_eq!(status, [0, 0]);
    assert!(session.is_open());
    for said in [
        "HeaderDigest=CRC32C\0",
        "DataDigest=None\0",
        "InitialR2T=No\0",
        "MaxBurstLength=1048576\0",
        "FirstBurstLength=512\0",
        "ErrorRecoveryLevel=0\0",
        "MaxConnections=1\0",
        "X-other=NotUnderstood\0",
        "TargetPortalGroupTag=1\0",
        "MaxRecvDataSegmentLength=262144\0",
    ] {
        assert!(text.contains(said), "{said} in {text}");
    }
}

#[test]
fn a_login_that_is_wrong_is_told_why() {
    let wrong = [
        ("TargetName=iqn.2026-01.example:test\0".to_owned(), [2, 7]),
        ("InitiatorName=iqn.x:y\0".to_owned(), [2, 7]),
        ("InitiatorName=iqn.x:y\0TargetName=iqn.other\0".to_owned(), [2, 3]),
        (format!("InitiatorName=iqn.x:y\0TargetName={NAME}\0AuthMethod=CHAP\0"), [2, 1]),
        (format!("InitiatorName=iqn.x:y\0TargetName={NAME}\0MaxBurstLength=1\0"), [2, 0]),
        ("no key".to_owned(), [2, 0]),
    ];
    for (text, expected) in wrong {
        let (_, _, status, _) = log_in(&text);
        assert_eq!(status, expected, "{text}");
    }
    let mut other = session();
    let early = message(0x01, 0x80, &[], &[]);
    assert!(matches!(other.handle(&early, &mut target()), Err(ProtocolError::Malformed(_))));
}

/// A target that knows one initiator, and proves itself to it.
fn guarded(target: Option<&str>) -> Session {
    let target = target.map(|secret| Account::new("target", secret).unwrap());
    let initiator = Account::new("user", "secretsecretsecret").unwrap();
    let chap = Chap { initiator, target, challenge: [1; 16], id: 0x27 };
    Session::new(Config { chap: Some(chap), ..Config::default() })
}

/// Messages of a login, each with its flags; the answers that come, each with its status.
fn talk(mut session: Session, messages: &[(u8, &str)]) -> (Session, Vec<([u8; 2], u8, String)>) {
    let (mut target, mut answers) = (target(), Vec::new());
    for (flags, text) in messages {
        let login = message(0x43, *flags, &[(16, 1), (24, 5)], text.as_bytes());
        let handled = session.handle(&login, &mut target);
        let answer = session.poll_output().expect("it is answered");
        let text = String::from_utf8_lossy(&answer[48..]).into_owned();
        answers.push(([answer[36], answer[37]], answer[1], text));
        if handled.is_err() {
            break;
        }
    }
    (session, answers)
}

const HELLO: &str =
    "InitiatorName=iqn.x:y\0TargetName=iqn.2026-01.example:test\0AuthMethod=CHAP,None\0";
/// The sum of `\x27`, `secretsecretsecret` and sixteen bytes of one.
const RIGHT: &str = "CHAP_N=user\0CHAP_R=0x926126b884d33562437f2321ce5a7904\0";

#[test]
fn an_initiator_that_knows_the_secret_comes_in() {
    let messages = [(0, HELLO), (0, "CHAP_A=7,5\0"), (0x81, RIGHT), (0x87, "InitialR2T=No\0")];
    let (session, answers) = talk(guarded(None), &messages);
    assert!(answers.iter().all(|(status, ..)| *status == [0, 0]), "{answers:?}");
    assert!(answers[0].2.contains("AuthMethod=CHAP\0"), "{answers:?}");
    let asked = "CHAP_A=5\0CHAP_I=39\0CHAP_C=0x01010101010101010101010101010101\0";
    assert_eq!(answers[1].2.trim_end_matches('\0'), asked.trim_end_matches('\0'));
    assert!(!answers[2].2.contains("CHAP_R") && answers[2].1 == 0x81, "{answers:?}");
    assert!(session.is_open());
}

#[test]
fn a_target_proves_itself_to_those_who_ask() {
    let question = format!("{RIGHT}CHAP_I=7\0CHAP_C=0x0102\0");
    let messages = [(0, HELLO), (0, "CHAP_A=5\0"), (0x81, question.as_str())];
    let (_, answers) = talk(guarded(Some("another secret")), &messages);
    assert_eq!(answers[2].0, [0, 0], "{answers:?}");
    assert!(
        answers[2].2.contains("CHAP_N=target\0CHAP_R=0x7ff6db6f472064c13a608ff17b489c83\0"),
        "{answers:?}"
    );
    // One that has nothing to prove itself by does not pretend.
    let (_, answers) = talk(guarded(None), &messages);
    assert_eq!(answers[2].0, [2, 1], "{answers:?}");
}

#[test]
fn an_initiator_that_does_not_prove_itself_stays_out() {
    let wrong = "CHAP_N=user\0CHAP_R=0x00000000000000000000000000000000\0";
    let other = RIGHT.replace("user", "another");
    let back = format!("{RIGHT}CHAP_I=7\0CHAP_C=0x{}\0", "01".repeat(16));
    let none = HELLO.replace("CHAP,", "");
    let skips = HELLO.replace("AuthMethod=CHAP,None\0", "");
    let begun = [(0, HELLO), (0, "CHAP_A=5\0")];
    let with = |last| [&begun[..], &[(0x81, last)]].concat();
    let all: [Vec<(u8, &str)>; 11] = [
        with(wrong),
        with(&other),
        with("CHAP_N=user\0"),
        with("CHAP_N=user\0CHAP_R=0x\0"),
        // Its own question back.
        with(&back),
        vec![(0, &none)],
        // The security stage left out, or left early.
        vec![(0x87, &skips)],
        vec![(0x81, &skips), (0x87, "InitialR2T=No\0")],
        vec![(0x81, HELLO), (0x87, "InitialR2T=No\0")],
        // An answer before the question, and an algorithm that is not here.
        vec![(0, HELLO), (0x81, RIGHT)],
        vec![(0, HELLO), (0, "CHAP_A=6,7\0")],
    ];
    for messages in all {
        let (session, answers) = talk(guarded(Some("another secret")), &messages);
        assert_eq!(answers.last().unwrap().0, [2, 1], "{messages:?}: {answers:?}");
        assert!(!session.is_open());
    }
}

#[test]
fn who_looks_for_targets_is_told_where_they_are() {
    let text = "InitiatorName=iqn.x:y\0SessionType=Discovery\0";
    let (mut session, mut target, status, _) = log_in(text);
    assert_eq!(status, [0, 0]);
    let ask = message(0x04, 0x80, &[(16, 2), (20, u32::MAX), (24, 5)], b"SendTargets=All\0");
    session.handle(&ask, &mut target).unwrap();
    let answer = session.poll_output().unwrap();
    let text = String::from_utf8_lossy(&answer[48..]);
    assert!(text.contains(&format!("TargetName={NAME}\0TargetAddress=192.0.2.1:3260,1\0")));
    // It has no unit.
    let command = message(0x01, 0x80, &[(16, 3), (24, 6)], &[]);
    session.handle(&command, &mut target).unwrap();
    assert_eq!(session.poll_output().unwrap()[0], 0x3f, "it is rejected");
}

fn opened() -> (Session, Target) {
    let (mut session, mut target, status, _) =
        log_in(&format!("InitiatorName=iqn.x:y\0TargetName={NAME}\0InitialR2T=No\0"));
    assert_eq!(status, [0, 0]);
    let ready = message(0x01, 0x80, &[(16, 90), (24, 5)], &[]);
    session.handle(&ready, &mut target).unwrap();
    assert_eq!(session.poll_output().unwrap()[3], 2, "the unit is new");
    (session, target)
}

/// A WRITE (10) of blocks from the first on.
fn write(tag: u32, number: u32, blocks: u32, flags: u8, data: &[u8]) -> Vec<u8> {
    let fields = [(16, tag), (20, blocks * 512), (24, number), (32, 0x2a00_0000), (36, 0)];
    let mut bytes = message(0x01, flags, &fields, data);
    bytes[40] = blocks as u8;
    bytes
}

#[test]
fn commands_outside_of_the_window_are_ignored_and_one_that_is_missing_ends_it() {
    let (mut session, mut target) = opened();
    for number in [5, 4, 6 + 128, 1 << 31] {
        let used = session.handle(&write(1, number, 1, 0xa0, &[0; 512]), &mut target);
        assert_eq!(used, Ok(48 + 512));
        assert!(session.poll_output().is_none() && session.poll_job().is_none(), "{number}");
    }
    let gap = session.handle(&write(1, 7, 1, 0xa0, &[0; 512]), &mut target);
    assert_eq!(gap, Err(ProtocolError::Malformed("a command out of order")));
}

#[test]
fn an_aborted_task_is_waited_for_and_not_answered() {
    let (mut session, mut target) = opened();
    session.handle(&write(1, 6, 1, 0xa0, &[0; 512]), &mut target).unwrap();
    let job = session.poll_job().expect("a device writes");
    let abort = message(0x42, 0x81, &[(16, 2), (20, 1), (24, 7)], &[]);
    session.handle(&abort, &mut target).unwrap();
    assert!(session.poll_output().is_none(), "the device may still write");
    let said = session.finish(&target, job.task, Ok(Vec::new())).concat();
    assert_eq!((said.len(), said[0], said[2], said[19]), (48, 0x22, 0, 2));
    // One that is not there.
    session.handle(&abort, &mut target).unwrap();
    assert_eq!(session.poll_output().unwrap()[2], 1);
}

#[test]
fn data_out_of_order_fail_their_command_and_no_other() {
    // A number or an offset that is not the next one, and more than was announced.
    for (number, offset, len) in [(3, 0, 512), (0, 512, 512), (0, 0, 2560)] {
        let (mut session, mut target) = opened();
        session.handle(&write(1, 6, 4, 0x20, &[]), &mut target).unwrap();
        session.handle(&write(2, 7, 1, 0xa0, &[0; 512]), &mut target).unwrap();
        let fields = [(16, 1), (20, u32::MAX), (36, number), (40, offset)];
        let data = message(0x05, 0x80, &fields, &vec![0; len]);
        session.handle(&data, &mut target).unwrap();
        let answer = session.poll_output().expect("it has failed");
        assert_eq!((answer[0], answer[3], answer[19]), (0x21, 2, 1));
        let job = session.poll_job().expect("the other is written");
        let said = session.finish(&target, job.task, Ok(Vec::new())).concat();
        assert_eq!((said[0], said[3], said[19]), (0x21, 0, 2));
    }
}

#[test]
fn data_that_nobody_asked_for_end_the_connection() {
    let text = format!("InitiatorName=iqn.x:y\0TargetName={NAME}\0ImmediateData=No\0");
    let (mut session, mut target, ..) = log_in(&text);
    let refused = session.handle(&write(1, 5, 1, 0xa0, &[0; 512]), &mut target);
    assert_eq!(refused, Err(ProtocolError::Malformed("data that nobody asked for")));
    let (mut session, mut target) = opened();
    let mut long = write(1, 6, 1, 0xa0, &[]);
    long[5] = 0xff;
    assert_eq!(session.handle(&long, &mut target), Err(ProtocolError::TooLong(0xff_0000)));
}

#[test]
fn a_sum_that_is_wrong_ends_the_connection() {
    let text = format!("InitiatorName=iqn.x:y\0TargetName={NAME}\0HeaderDigest=CRC32C\0");
    let (mut session, mut target, ..) = log_in(&text);
    let mut ping = message(0x40, 0x80, &[(16, 1), (20, u32::MAX)], &[]);
    let sum = landfall_placement::crc32c::crc32c(&ping).to_le_bytes();
    ping.extend(sum);
    assert_eq!(session.handle(&ping, &mut target), Ok(52));
    assert_eq!(session.poll_output().unwrap().len(), 52);
    ping[50] ^= 1;
    assert_eq!(session.handle(&ping, &mut target), Err(ProtocolError::HeaderDigest));
}

/// A session that begins again while the one before it has work under way, and reserves the unit.
#[test]
fn a_login_with_the_same_name_takes_the_place_of_the_session_before() {
    let text = format!("InitiatorName=iqn.x:y\0TargetName={NAME}\0InitialR2T=No\0");
    let (mut first, mut target) = opened();
    let read = {
        let mut read = message(0x01, 0xc0, &[(16, 7), (20, 512), (24, 6)], &[]);
        read[32..42].copy_from_slice(&[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
        read
    };
    first.handle(&read, &mut target).unwrap();
    let job = first.poll_job().expect("it is for the device");
    let mut reserve = message(0x01, 0x80, &[(16, 8), (24, 7)], &[]);
    reserve[32] = 0x16;
    first.handle(&reserve, &mut target).unwrap();
    assert_eq!(first.poll_output().unwrap()[3], 0, "it is reserved");

    let before = first.nexus().unwrap();
    let mut second = session();
    let login = message(0x43, 0x87, &[(16, 1), (24, 5)], text.as_bytes());
    second.handle(&login, &mut target).unwrap();
    assert_eq!(second.poll_reinstated(), Some(before));
    assert_eq!(second.poll_reinstated(), None);
    let answer = second.poll_output().unwrap();
    assert_eq!(answer[36..38], [0, 0]);
    assert_ne!(answer[14..16], [0, 0], "a session has a handle");

    // What the first one had under way is aborted, and nothing more begins.
    let reply = first.finish(&target, job.task, Ok(vec![1; 512]));
    assert_eq!(reply.concat()[3], 0x40, "TASK ABORTED");
    let ready = message(0x01, 0x80, &[(16, 9), (24, 8)], &[]);
    first.handle(&ready, &mut target).unwrap();
    assert_eq!(first.poll_output().unwrap()[3], 0x40, "TASK ABORTED");

    // The second one finds the unit new, and its reservation outlives the end of the first.
    let mut command = message(0x01, 0x80, &[(16, 2), (24, 5)], &[]);
    second.handle(&command, &mut target).unwrap();
    assert_eq!(second.poll_output().unwrap()[3], 2, "the unit is new");
    reserve[24..28].copy_from_slice(&6_u32.to_be_bytes());
    second.handle(&reserve, &mut target).unwrap();
    assert_eq!(second.poll_output().unwrap()[3], 0);
    first.close(&mut target);
    let other = text.replace("iqn.x:y", "iqn.x:other");
    let mut third = session();
    third.handle(&message(0x43, 0x87, &[(24, 5)], other.as_bytes()), &mut target).unwrap();
    assert_eq!(third.poll_reinstated(), None, "another name is another initiator");
    third.poll_output();
    for (number, status) in [(5, 2), (6, 0x18)] {
        command[24..28].copy_from_slice(&u32::to_be_bytes(number));
        third.handle(&command, &mut target).unwrap();
        assert_eq!(third.poll_output().unwrap()[3], status, "command {number}");
    }
}

/// One name with two numbers of sessions is two initiators: two paths, for one.
#[test]
fn another_session_of_the_same_name_is_beside_the_first() {
    let text = format!("InitiatorName=iqn.x:y\0TargetName={NAME}\0");
    let (first, mut target) = opened();
    let mut second = session();
    let mut login = message(0x43, 0x87, &[(16, 1), (24, 5)], text.as_bytes());
    login[8..14].copy_from_slice(&[0x40, 0, 0, 0, 0, 7]);
    second.handle(&login, &mut target).unwrap();
    assert_eq!(second.poll_reinstated(), None);
    assert!(first.nexus().is_some() && first.nexus() != second.nexus());
}
