//! Programs in Rust, C and Python exchange elements, publications and calls, each pair of
//! languages in both roles.
//!
//! The C program is compiled here with the system's compiler against `landfall.h` and the
//! library that cargo built; the Python program runs with the module of this crate. What a
//! machine lacks (a compiler, Python) is skipped, and the skip says so.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use landfall::clan::Error;
use landfall::clan::layer::{publish, queue, rpc, typed};
use landfall::clan::shared::{SharedConfig, SharedNode};
use landfall_testkit::TemporaryFolder;

const COUNT: u32 = 1000;
const QUOTE: &str = "{price:f64@0,size:u32@8,venue:[u8;4]@12}16";

pub(super) fn patience() -> Option<Instant> {
    Some(Instant::now() + Duration::from_secs(60))
}

pub(super) fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Where cargo put the library: beside the folder of this test.
pub(super) fn library_folder() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.ancestors()
        .skip(1)
        .take(2)
        .find(|folder| folder.join("liblandfall_c.so").exists())
        .expect("cargo builds the library with this test")
        .to_owned()
}

/// A program in C, compiled once; none where there is no compiler.
pub(super) type CProgram = OnceLock<Option<(TemporaryFolder, PathBuf)>>;

pub(super) fn compiled(built: &'static CProgram, name: &str) -> Option<&'static Path> {
    let built = built.get_or_init(|| {
        let folder = TemporaryFolder::new("c-program");
        let program = folder.path().join("program");
        let mut compiler = Command::new("cc");
        compiler.args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-O1", "-pthread", "-o"]);
        compiler.arg(&program).arg(here().join(format!("{name}.c")));
        compiler.arg("-I").arg(here().join("include")).arg("-I").arg(here().join("examples"));
        compiler.arg("-L").arg(library_folder()).arg("-llandfall_c");
        match compiler.status() {
            Ok(status) => assert!(status.success(), "the C program does not compile"),
            Err(error) => {
                println!("skipped: no C compiler: {error}");
                return None;
            }
        }
        Some((folder, program))
    });
    built.as_ref().map(|(_, program)| &**program)
}

/// Runs a C program with the library that cargo built.
pub(super) fn c_command(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", library_folder());
    command
}

/// Runs a Python program with the module of this crate; none where there is no Python.
pub(super) fn python_command(program: &str) -> Option<Command> {
    if !has_python() {
        return None;
    }
    let mut command = Command::new("python3");
    command.arg("-B").arg(here().join(program));
    command.env("PYTHONPATH", here().join("python"));
    command.env("LANDFALL_LIBRARY", library_folder().join("liblandfall_c.so"));
    Some(command)
}

fn has_python() -> bool {
    let there = Command::new("python3").arg("--version").stdout(Stdio::null()).status().is_ok();
    if !there {
        println!("skipped: no python3");
    }
    there
}

/// What runs a side of a test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Language {
    C,
    Python,
    /// Python that awaits.
    Asyncio,
    Rust,
}

impl Language {
    /// A program of this crate, `NAME.c` and `NAME.py`; none of Rust, which a test has itself, or
    /// where the machine lacks the language.
    pub(super) fn command(self, built: &'static CProgram, name: &str) -> Option<Command> {
        match self {
            Self::Rust => None,
            Self::C => Some(c_command(compiled(built, name)?)),
            Self::Python | Self::Asyncio => python_command(&format!("{name}.py")),
        }
    }

    /// What the program calls what it is to do.
    pub(super) fn task(self, what: &str) -> String {
        format!("{what}{}", if self == Self::Asyncio { "-async" } else { "" })
    }
}

/// A program in another language, which does not outlive its test.
pub(super) struct Other(pub(super) Child);

impl Other {
    pub(super) fn ended_well(&mut self) {
        let deadline = patience();
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                assert!(status.success(), "{status}");
                return;
            }
            assert!(Some(Instant::now()) < deadline, "it does not end");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The program of shared memory.
fn command(language: Language) -> Option<Command> {
    static BUILT: CProgram = OnceLock::new();
    language.command(&BUILT, "examples/exchange")
}

/// Starts the part of a program; none where the machine lacks the language.
fn start(language: Language, folder: &Path, what: &str) -> Option<Box<dyn FnOnce()>> {
    if language == Language::Rust {
        let (folder, what) = (folder.to_owned(), what.to_owned());
        let thread = std::thread::spawn(move || in_rust(&folder, &what));
        return Some(Box::new(move || thread.join().unwrap()));
    }
    let mut command = command(language)?;
    command.arg(folder).arg(what);
    let mut other = Other(command.spawn().unwrap());
    Some(Box::new(move || other.ended_well()))
}

/// What the programs in the other languages do, in Rust.
fn in_rust(folder: &Path, what: &str) {
    let node = SharedNode::open(SharedConfig::new(folder)).unwrap();
    match what {
        "send" => send(&node),
        "receive" => receive(&node),
        "receive-others" => {
            let config = queue::Config::new(16, 16).layout(typed::fingerprint_of("others"));
            let half = queue::Receiver::open(&node, config).unwrap();
            let found = node.find("quotes", patience()).unwrap();
            let mut receiver = found.join(half, patience()).unwrap();
            let got = receiver.get(&mut [0; 16], patience());
            assert!(matches!(got, Err(Error::OtherLayout { .. })), "{got:?}");
        }
        "publish" => publish_news(&node),
        "subscribe" => subscribe(&node),
        "serve" => serve(&node),
        "call" => call(&node),
        other => panic!("{other} is nothing"),
    }
}

fn quotes() -> queue::Config {
    queue::Config::new(16, 16).singly().layout(typed::fingerprint_of(QUOTE))
}

fn send(node: &SharedNode) {
    let offer = node.offer("quotes").unwrap();
    let half = queue::Sender::open(node, quotes()).unwrap();
    let mut sender = offer.accept(patience()).unwrap().join(half).unwrap();
    for number in 0..COUNT {
        let mut loan = sender.loan(patience()).unwrap();
        loan.write(0, &(f64::from(number) / 2.0).to_le_bytes()).unwrap();
        loan.write(8, &number.to_le_bytes()).unwrap();
        loan.write(12, b"XETR").unwrap();
        if loan.publish().is_err() {
            break;
        }
    }
    sender.drain(patience()).unwrap();
}

fn receive(node: &SharedNode) {
    let half = queue::Receiver::open(node, quotes()).unwrap();
    let found = node.find("quotes", patience()).unwrap();
    let mut receiver = found.join(half, patience()).unwrap();
    for number in 0..COUNT {
        let mut quote = [0; 16];
        receiver.get(&mut quote, patience()).unwrap();
        assert_eq!(quote[..8], (f64::from(number) / 2.0).to_le_bytes());
        assert_eq!(quote[8..12], number.to_le_bytes());
        assert_eq!(quote[12..], *b"XETR");
    }
    assert!(matches!(receiver.get(&mut [0; 16], patience()), Err(Error::Closed)));
}

fn publish_news(node: &SharedNode) {
    let offer = node.offer("news").unwrap();
    let mut publisher = publish::Publisher::open(node, publish::Config::new(64, 256)).unwrap();
    offer.accept(patience()).unwrap().subscribe(&mut publisher).unwrap();
    for number in 0..100 {
        let told = publisher.publish(format!("news {number}").as_bytes()).unwrap();
        assert_eq!(told.sent, 1);
    }
    // Until the reader has gone, what it reads is there.
    let gone = node.offer("news are read").unwrap();
    let half = rpc::Server::open(node, rpc::Config::new(8, 8)).unwrap();
    let mut server = gone.accept(patience()).unwrap().join(half).unwrap();
    assert!(server.next_to_keep(patience()).unwrap().is_empty());
    server.reply_to_kept(&[]).unwrap();
}

fn subscribe(node: &SharedNode) {
    let half = publish::Subscriber::open(node, publish::Config::new(64, 256)).unwrap();
    let found = node.find("news", patience()).unwrap();
    let mut subscriber = found.join(half, patience()).unwrap();
    for number in 0..100 {
        let news = subscriber.next(patience()).unwrap();
        assert_eq!((news.bytes, news.missed), (format!("news {number}").into_bytes(), 0));
    }
    let half = rpc::Client::open(node, rpc::Config::new(8, 8)).unwrap();
    let found = node.find("news are read", patience()).unwrap();
    let mut client = found.join(half, patience()).unwrap();
    assert!(client.call(&[], patience()).unwrap().is_empty());
}

fn serve(node: &SharedNode) {
    let offer = node.offer("sums").unwrap();
    let half = rpc::Server::open(node, rpc::Config::new(64, 64)).unwrap();
    let mut server = offer.accept(patience()).unwrap().join(half).unwrap();
    loop {
        let served = server.serve_one(patience(), |request, reply| {
            let numbers = request.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes));
            reply.extend(numbers.sum::<u64>().to_le_bytes());
        });
        match served {
            Ok(()) => {}
            Err(error) if error.is_gone() => return,
            Err(error) => panic!("{error}"),
        }
    }
}

fn call(node: &SharedNode) {
    let half = rpc::Client::open(node, rpc::Config::new(64, 64)).unwrap();
    let mut client = node.find("sums", patience()).unwrap().join(half, patience()).unwrap();
    for number in 0..100u64 {
        let request = [number, 2 * number, 7].map(u64::to_le_bytes).concat();
        let sum = client.call(&request, patience()).unwrap();
        assert_eq!(sum, (3 * number + 7).to_le_bytes());
    }
}

/// Every pair of languages, of which one at least is another than Rust.
fn each_pair(offers: &str, finds: &str) {
    const ALL: [Language; 3] = [Language::C, Language::Python, Language::Rust];
    for (one, two) in ALL.into_iter().flat_map(|one| ALL.map(|two| (one, two))) {
        if (one, two) == (Language::Rust, Language::Rust) {
            continue;
        }
        println!("{one:?} {offers}, {two:?} {finds}");
        let folder = TemporaryFolder::new("languages");
        let Some(offering) = start(one, folder.path(), offers) else { continue };
        let Some(finding) = start(two, folder.path(), finds) else { continue };
        finding();
        offering();
    }
}

#[test]
fn queues_between_languages_carry_every_element() {
    each_pair("send", "receive");
}

#[test]
fn publications_between_languages_reach_their_readers() {
    each_pair("publish", "subscribe");
}

#[test]
fn calls_between_languages_are_answered() {
    each_pair("serve", "call");
}

/// Who takes elements for something else is told so, and so is who sends them.
#[test]
fn another_layout_is_noticed_in_every_language() {
    for (one, two) in [
        (Language::C, Language::Python),
        (Language::Python, Language::Rust),
        (Language::Rust, Language::C),
    ] {
        let folder = TemporaryFolder::new("languages");
        let node = SharedNode::open(SharedConfig::new(folder.path())).unwrap();
        let offering = match one {
            // It ends with an error, as it should.
            Language::Rust => {
                let offer = node.offer("quotes").unwrap();
                let half = queue::Sender::open(&node, quotes()).unwrap();
                let node = node.clone();
                std::thread::spawn(move || {
                    let mut sender = offer.accept(patience()).unwrap().join(half).unwrap();
                    let deadline = patience();
                    loop {
                        match sender.try_put(&[0; 16]) {
                            Err(Error::OtherLayout { .. } | Error::Closed) => break,
                            Err(error) if error.is_gone() => break,
                            _ => assert!(Some(Instant::now()) < deadline),
                        }
                    }
                    drop(node);
                })
            }
            other => {
                let Some(mut command) = offering_command(other, folder.path()) else { continue };
                std::thread::spawn(move || {
                    assert!(!command.status().unwrap().success(), "the sender is told too");
                })
            }
        };
        let Some(finding) = start(two, folder.path(), "receive-others") else { continue };
        finding();
        offering.join().unwrap();
    }
}

fn offering_command(language: Language, folder: &Path) -> Option<Command> {
    let mut command = command(language)?;
    command.arg(folder).arg("send").stderr(Stdio::null());
    Some(command)
}

#[test]
fn what_makes_no_sense_is_refused_in_every_language() {
    for language in [Language::C, Language::Python] {
        let folder = TemporaryFolder::new("languages");
        if let Some(other) = start(language, folder.path(), "mistakes") {
            other();
        }
    }
}

/// A datagram in two fragments comes out whole in C; what overlaps, is late or makes no sense is
/// refused.
#[test]
fn fragments_are_joined_in_c() {
    static BUILT: CProgram = OnceLock::new();
    // Without a compiler, which was said.
    let Some(program) = compiled(&BUILT, "tests/c/reassembly") else { return };
    Other(c_command(program).spawn().unwrap()).ended_well();
}

/// The programs of the README compile as they are.
#[test]
fn the_c_programs_of_the_readme_compile() {
    let readme = std::fs::read_to_string(here().join("README.md")).unwrap();
    let blocks = readme.split("```c\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let programs: Vec<_> = blocks.filter(|block| block.starts_with("#include")).collect();
    assert_eq!(programs.len(), 4);
    for program in programs {
        let folder = TemporaryFolder::new("readme");
        let source = folder.path().join("first.c");
        std::fs::write(&source, program).unwrap();
        let mut compiler = Command::new("cc");
        compiler.args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I"]);
        compiler.arg(here().join("include")).arg(source);
        match compiler.status() {
            Ok(status) => assert!(status.success(), "it does not compile:\n{program}"),
            Err(error) => println!("skipped: no C compiler: {error}"),
        }
    }
}

/// Those in Python that say what comes of them run as they are.
#[test]
fn the_python_programs_of_the_readme_run() {
    let readme = std::fs::read_to_string(here().join("README.md")).unwrap();
    let blocks = readme.split("```python\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let programs: Vec<_> = blocks.filter(|block| block.contains("assert ")).collect();
    assert_eq!(programs.len(), 4);
    for program in programs {
        let folder = TemporaryFolder::new("readme");
        let source = folder.path().join("program.py");
        std::fs::write(&source, program).unwrap();
        let Some(mut python) = python_command(source.to_str().unwrap()) else { return };
        Other(python.current_dir(folder.path()).spawn().unwrap()).ended_well();
    }
}

/// What regions show of themselves in Python, and what is refused meanwhile.
#[test]
fn views_of_regions_lie_in_place_and_are_guarded() {
    if let Some(mut python) = python_command("tests/views.py") {
        Other(python.spawn().unwrap()).ended_well();
    }
}

/// What the header declares is what the library has, and the other way round.
#[test]
fn the_header_and_the_library_agree() {
    let header = std::fs::read_to_string(here().join("include/landfall.h")).unwrap();
    let mut declared: Vec<_> = names(&header, "(").collect();
    let mut defined: Vec<String> = Vec::new();
    for folder in ["src", "src/verbs"] {
        let files =
            std::fs::read_dir(here().join(folder)).unwrap().map(|file| file.unwrap().path());
        for file in files.filter(|path| path.is_file()) {
            let source = std::fs::read_to_string(file).unwrap();
            let functions = source.lines().filter(|line| line.contains("extern \"C\" fn lf_"));
            defined.extend(functions.map(|line| {
                let name = line.split("fn ").nth(1).unwrap();
                name.split('(').next().unwrap().to_owned()
            }));
        }
    }
    declared.sort();
    declared.dedup();
    defined.sort();
    assert_eq!(declared, defined);
}

#[test]
fn the_module_and_the_library_have_one_version() {
    let project = std::fs::read_to_string(here().join("python/pyproject.toml")).unwrap();
    assert!(project.contains(concat!("\nversion = \"", env!("CARGO_PKG_VERSION"), "\"\n")));
}

/// The functions that are declared.
fn names<'a>(header: &'a str, open: &'a str) -> impl Iterator<Item = String> + 'a {
    let code = header.lines().filter(|line| !line.starts_with([' ', '/']));
    code.filter_map(move |line| {
        let (before, _) = line.split_once(open)?;
        let name = before.rsplit([' ', '*']).next()?;
        name.starts_with("lf_").then(|| name.to_owned())
    })
}
