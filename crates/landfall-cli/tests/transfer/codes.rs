//! From where the code comes, which codes are taken, and that nobody else sees them.

use std::fs::{self, File, Permissions};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::pty::{OpenptFlags, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, tcgetattr};

use super::ends::{CODE, Running, Scratch, landfall, listening, receive, send, until};

/// A receiver that has the code by no option on the command line.
fn receiving(dir: &Path, more: &[&str]) -> Command {
    let mut command = landfall();
    command.args(["receive", "--local", "127.0.0.1:0", "--dir"]).arg(dir).args(more);
    command
}

fn sending(file: &Path, at: &str, more: &[&str]) -> Command {
    let mut command = landfall();
    command.arg("send").args(more).arg(file).arg(at);
    command
}

fn secret(scratch: &Scratch, mode: u32) -> String {
    let path = scratch.write(&format!("code-{mode:o}"), format!("{CODE}\nmore\n").as_bytes());
    fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    path.to_str().unwrap().into()
}

/// Gives the code by standard input.
fn fed(command: &mut Command, line: &str) -> Running {
    let (read, write) = std::io::pipe().unwrap();
    let running = Running::start(command.stdin(read));
    (&write).write_all(line.as_bytes()).unwrap();
    running
}

#[test]
fn the_code_comes_by_environment_file_or_input_at_either_end() {
    let scratch = Scratch::new("ways");
    let file = scratch.write("file", b"contents");
    let path = secret(&scratch, 0o600);
    let by_file = ["--code-file", path.as_str()];
    for (nth, by) in ["environment", "file", "input"].into_iter().enumerate() {
        let dir = scratch.path(&format!("to-{nth}"));
        let mut receiver = match by {
            "environment" => listening(receiving(&dir, &[]).env("LANDFALL_CODE", CODE)),
            "file" => listening(&mut receiving(&dir, &by_file)),
            _ => {
                let mut running =
                    fed(&mut receiving(&dir, &["--code-stdin"]), &format!("{CODE}\n"));
                let at = running.line("listening on ");
                running.line("code: ");
                super::ends::Listening { running, at }
            }
        };
        let hint = receiver.running.line("on the other machine: ");
        assert!(
            hint.starts_with("landfall send PATH") && hint.contains("asks for the code"),
            "{hint}"
        );
        let plain = |text: &str| text.replace('-', "");
        let said = plain(&receiver.running.said.join("\n"));
        assert!(!said.contains(&plain(CODE)), "{said}");
        let line = fs::read(format!("/proc/{}/cmdline", receiver.running.id())).unwrap();
        assert!(!String::from_utf8_lossy(&line).contains(CODE));

        let sender = match by {
            "environment" => Running::start(&mut sending(&file, &receiver.at, &by_file)),
            "file" => fed(&mut sending(&file, &receiver.at, &["--code-stdin"]), CODE),
            _ => Running::start(sending(&file, &receiver.at, &[]).env("LANDFALL_CODE", CODE)),
        };
        sender.end().expect(0).says("BLAKE3 equal");
        receiver.running.end().expect(0);
        assert_eq!(fs::read(dir.join("file")).unwrap(), b"contents");
    }
}

#[test]
fn a_file_that_others_may_read_has_no_secret() {
    let scratch = Scratch::new("modes");
    let file = scratch.write("file", b"contents");
    for mode in [0o644, 0o640, 0o604, 0o602] {
        let path = secret(&scratch, mode);
        let by_file = ["--code-file", path.as_str()];
        let commands =
            [receiving(&scratch.path("to"), &by_file), sending(&file, "127.0.0.1:9", &by_file)];
        for mut command in commands {
            let ended = Running::start(&mut command).end().expect(1);
            ended.says(&path);
            ended.says("chmod 600");
        }
    }
}

/// A terminal, and the end of it that a program has.
fn terminal() -> (File, OwnedFd) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let end = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    (File::from(master), end.into())
}

fn has_echo(terminal: &File) -> bool {
    tcgetattr(terminal).unwrap().local_modes.contains(LocalModes::ECHO)
}

#[test]
fn who_is_asked_at_a_terminal_types_unseen() {
    let scratch = Scratch::new("terminal");
    let file = scratch.write("file", b"contents");
    // By an option, and where nothing else is said; that needs a terminal to be the program's.
    for (option, has_program) in [(true, true), (false, has_setsid())] {
        if !has_program {
            continue;
        }
        let dir = scratch.path(if option { "to-option" } else { "to-nothing" });
        let receiver = receive(&dir, &[]);
        let (mut shown, end) = terminal();
        let mut command = if option {
            sending(&file, &receiver.at, &["--code-stdin"])
        } else {
            let mut command = Command::new("setsid");
            command.args(["--ctty", "--wait", env!("CARGO_BIN_EXE_landfall"), "send"]);
            command.arg(&file).arg(&receiver.at).env_remove("LANDFALL_CODE");
            command
        };
        let mut sender = Running::start(command.stdin(Stdio::from(end)));
        drop(command);
        until("a question", || !has_echo(&shown) || sender.is_over());
        shown.write_all(format!("{CODE}\n").as_bytes()).unwrap();
        sender.end().expect(0).says("code: ");
        receiver.running.end().expect(0);
        assert_eq!(fs::read(dir.join("file")).unwrap(), b"contents");
        let mut text = Vec::new();
        // Ends with an error where nobody has the other end any more.
        let _ = shown.read_to_end(&mut text);
        assert!(!String::from_utf8_lossy(&text).contains(CODE), "{text:?}");
    }
}

fn has_setsid() -> bool {
    Command::new("setsid").arg("--version").stdout(Stdio::null()).status().is_ok()
}

#[test]
fn a_terminal_has_its_echo_again_after_an_interrupt() {
    let scratch = Scratch::new("echo");
    let (shown, end) = terminal();
    let mut command = receiving(&scratch.path("to"), &["--code-stdin"]);
    let running = Running::start(command.stdin(Stdio::from(end)));
    until("a question", || !has_echo(&shown));
    running.interrupt();
    running.end().expect(130);
    assert!(has_echo(&shown));
}

#[test]
fn codes_that_are_easily_guessed_are_refused_however_they_are_given() {
    let scratch = Scratch::new("weak");
    let file = scratch.write("file", b"contents");
    let dir = scratch.path("to");
    for weak in ["1234", "password", "aaaaaaaaaaaaaaaaaaaa"] {
        for mut command in [receiving(&dir, &[]), sending(&file, "127.0.0.1:9", &[])] {
            let ended = Running::start(command.env("LANDFALL_CODE", weak)).end().expect(1);
            ended.says("too easy to guess");
            ended.says("four words");
        }
        for mut command in
            [receiving(&dir, &["--code", weak]), sending(&file, "127.0.0.1:9", &["--code", weak])]
        {
            Running::start(&mut command).end().expect(2).says("too easy to guess");
        }
    }
}

#[test]
fn ways_to_give_the_code_that_contradict_each_other_are_refused() {
    let scratch = Scratch::new("conflicts");
    let path = secret(&scratch, 0o600);
    let file = scratch.write("file", b"contents");
    let both = ["--code-stdin", "--code-file", path.as_str()];
    Running::start(&mut sending(&file, "127.0.0.1:9", &both)).end().expect(2);
    Running::start(&mut receiving(&scratch.path("to"), &both)).end().expect(2);
    // Standard input is one thing.
    let data = Path::new("-");
    let ended =
        Running::start(&mut sending(data, "127.0.0.1:9", &["--code-stdin"])).end().expect(1);
    ended.says("both the code and a file");
    let ended =
        Running::start(&mut sending(&file, "127.0.0.1:9", &["--code-stdin"])).end().expect(1);
    ended.says("the code is empty");
}

#[test]
fn help_says_that_everything_is_encrypted_and_codes_are_in_the_list_of_processes() {
    for command in ["send", "receive"] {
        let ended = Running::start(landfall().args([command, "--help"])).end().expect(0);
        let text = String::from_utf8(ended.stdout).unwrap();
        let joined = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            joined.contains("Everything is encrypted") && text.contains("Exit codes"),
            "{text}"
        );
        assert!(joined.contains("list of processes"), "{text}");
    }
}

#[test]
fn names_and_messages_do_not_command_a_terminal() {
    let scratch = Scratch::new("escapes");
    let tree = scratch.path("from/tree");
    fs::create_dir_all(&tree).unwrap();
    for name in ["\x1b[2J\u{9b}31m\x7f", "exe.\u{202e}gpj", "a\rb\nlandfall: all is well"] {
        rustix::fs::mknodat(
            rustix::fs::CWD,
            tree.join(name),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
    }
    let receiver = receive(&scratch.path("to"), &[]);
    let ended = send(&[&tree], &receiver.at, &[]).end().expect(1);
    let shown = receiver.running.end().expect(0).said + &ended.said + &ended.json().to_string();
    let is_bad = |c: char| c != '\n' && c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c);
    assert!(!shown.contains(is_bad), "{shown:?}");
    assert!(!shown.contains("\nlandfall: all is well"), "{shown:?}");
    assert!(ended.said.contains("\\u{1b}[2J\\u{9b}31m\\u{7f}"), "{}", ended.said);
    assert!(ended.said.contains("exe.\\u{202e}gpj"), "{}", ended.said);
}
