//! Who does not know the code gets nothing in.

use std::fs;

use crate::ends::{CODE, Running, Scratch, landfall, receive, send};

#[test]
fn three_wrong_codes_end_the_receiver_and_nothing_comes_in() {
    let scratch = Scratch::new("wrong");
    let file = scratch.write("file", b"contents");
    let receiver = receive(&scratch.path("to"), &[]);
    for left in ["2 more tries", "one more try", "third wrong try"] {
        let mut command = landfall();
        command.args(["send", "--code", "another code entirely"]).arg(&file).arg(&receiver.at);
        let ended = Running::start(&mut command).end().expect(1);
        ended.says("the receiver has another code");
        ended.says(left);
    }
    let receiver = receiver.running.end().expect(1);
    assert_eq!(receiver.said.matches("does not know the code").count(), 3, "{}", receiver.said);
    receiver.says("3 wrong codes: ended");
    assert_eq!(fs::read_dir(scratch.path("to")).unwrap().count(), 0);
}

#[test]
fn a_wrong_code_does_not_spoil_it_for_the_right_one() {
    let scratch = Scratch::new("right");
    let file = scratch.write("file", b"contents");
    let receiver = receive(&scratch.path("to"), &[]);
    for _ in 0..2 {
        let mut command = landfall();
        command.args(["send", "--code", "another code entirely"]).arg(&file).arg(&receiver.at);
        Running::start(&mut command).end().expect(1);
    }
    send(&[&file], &receiver.at, &[]).end().expect(0);
    let receiver = receiver.running.end().expect(0);
    assert!(receiver.said.contains("not encrypted"), "{}", receiver.said);
    assert_eq!(fs::read(scratch.path("to/file")).unwrap(), b"contents");
}

#[test]
fn help_says_that_contents_can_be_read_on_the_way() {
    for command in ["send", "receive"] {
        let ended = Running::start(landfall().args([command, "--help"])).end().expect(0);
        let text = String::from_utf8(ended.stdout).unwrap();
        assert!(text.contains("NO ENCRYPTION") || text.contains("NO\nENCRYPTION"), "{text}");
        assert!(text.contains("READ by everybody") && text.contains("Exit codes"), "{text}");
    }
}

#[test]
fn a_short_code_is_warned_of() {
    let scratch = Scratch::new("short");
    assert!(CODE.len() > 12);
    let mut command = landfall();
    command.args(["receive", "--code", "1234", "--local", "127.0.0.1:0", "--dir"]);
    let mut running = Running::start(command.arg(scratch.path("to")));
    running.line("landfall: the code is short");
}
