//! Two ends of our own: words there and back, and a stream.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::{Figure, Kind, Row, Workspace, streams};

pub(crate) const ROWS: &[Row] = &[
    ("64 bytes there and back, read and write", |ground, kind| pair(ground, kind, "block")),
    ("64 bytes there and back, epoll", |ground, kind| pair(ground, kind, "epoll")),
    ("stream of 64 KiB writes, Gbit/s", |ground, kind| pair(ground, kind, "stream")),
];

const WORD: usize = 64;
const PIECE: usize = 64 * 1024;
const TIME: Duration = Duration::from_millis(700);

fn pair(ground: &Workspace, kind: Kind, how: &str) -> Option<Figure> {
    pair_of(ground, kind, &[how], if how == "stream" { 1.0 } else { 1e6 })
}

/// Runs both ends; the caller says what it saw. CPU is for this many (`per`) of what is counted.
pub(crate) fn pair_of(ground: &Workspace, kind: Kind, how: &[&str], per: f64) -> Option<Figure> {
    if kind == Kind::Unix {
        return None;
    }
    let own = std::env::current_exe().ok()?;
    let mut server = ground.command(&own, 0, kind);
    server.args(["--end", "serve"]).args(how).stdout(Stdio::piped());
    let mut server = server.spawn().ok()?;
    let port = first_line(&mut server)?;
    let mut client = ground.command(&own, 1, kind);
    client.args(["--end", "call"]).args(how).arg(port.trim()).stdout(Stdio::piped());
    let mut client = client.spawn().ok()?;
    let seen = seen(&mut client)?;
    let cpu = end_of(&client)?.1 + end_of(&server)?.1;
    Some(Figure { cpu: cpu * per / seen.count, ..seen.figure })
}

/// The same of one process, which has no sockets.
pub(crate) fn alone(ground: &Workspace, how: &[&str]) -> Option<Figure> {
    let mut command = ground.command(std::env::current_exe().ok()?, 0, Kind::Kernel);
    let mut child = command.arg("--end").args(how).stdout(Stdio::piped()).spawn().ok()?;
    let seen = seen(&mut child)?;
    Some(Figure { cpu: end_of(&child)?.1 / seen.count, ..seen.figure })
}

/// What one end has said at its end.
struct SaidByEnd {
    count: f64,
    figure: Figure,
}

fn seen(child: &mut Child) -> Option<SaidByEnd> {
    let said = first_line(child)?;
    let numbers: Vec<f64> = said.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let &[count, seconds, median_us, p99_us] = numbers.as_slice() else { return None };
    let figure = Figure { per_second: count / seconds, median_us, p99_us, cpu: 0.0 };
    Some(SaidByEnd { count, figure })
}

fn first_line(child: &mut Child) -> Option<String> {
    let mut line = String::new();
    BufReader::new(child.stdout.take()?).read_line(&mut line).ok()?;
    Some(line)
}

/// Waits for its end: whether it ended well, and what it has used of its core.
pub(crate) fn end_of(child: &Child) -> Option<(bool, f64)> {
    wait_for(child, 0)
}

/// The same, where it ends in this time.
pub(crate) fn end_within(child: &Child, patience: Duration) -> Option<(bool, f64)> {
    let deadline = Instant::now() + patience;
    loop {
        let end = wait_for(child, libc::WNOHANG);
        if end.is_some() || Instant::now() > deadline {
            return end;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn wait_for(child: &Child, options: i32) -> Option<(bool, f64)> {
    let mut status = 0;
    // SAFETY: numbers only.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: a child of ours that was not waited for, and room for the answer.
    let ended = unsafe { libc::wait4(child.id().cast_signed(), &mut status, options, &mut usage) };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    (ended > 0).then(|| (status == 0, seconds(usage.ru_utime) + seconds(usage.ru_stime)))
}

/// One end, as its words say.
pub(crate) fn run(words: &[String]) {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let number = |word: &str| word.parse().expect("a number");
    match words.as_slice() {
        ["copy", how, len] => streams::copies(how, number(len)),
        ["serve", "large", len] => streams::serve(number(len)),
        ["call", "large", len, port] => streams::call(number(len), port.parse().expect("a port")),
        ["serve", how] => serve(how),
        ["call", how, port] => call(how, port.parse().expect("a port")),
        _ => panic!("which end?"),
    }
}

fn serve(how: &str) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    println!("{}", listener.local_addr().expect("it is bound").port());
    let (mut stream, _) = listener.accept().expect("one calls");
    stream.set_nodelay(true).expect("it is TCP");
    match how {
        "stream" => drain(&mut stream),
        "epoll" => Waiting::on(&stream).echo(&mut stream),
        _ => {
            let mut word = [0; WORD];
            while stream.read_exact(&mut word).is_ok() {
                stream.write_all(&word).expect("the caller is there");
            }
        }
    }
}

/// Takes all that comes, and says at the end how much it was.
fn drain(stream: &mut TcpStream) {
    let (mut piece, mut sum) = (vec![0; PIECE], 0_u64);
    while let Ok(got @ 1..) = stream.read(&mut piece) {
        sum += got as u64;
    }
    stream.write_all(&sum.to_ne_bytes()).expect("the caller is there");
}

fn call(how: &str, port: u16) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    stream.set_nodelay(true).expect("it is TCP");
    let begin = Instant::now();
    if how == "stream" {
        let piece = vec![7; PIECE];
        while begin.elapsed() < TIME {
            stream.write_all(&piece).expect("it reads");
        }
        stream.shutdown(std::net::Shutdown::Write).expect("it is open");
        let mut sum = [0; 8];
        stream.read_exact(&mut sum).expect("it says how much it was");
        let gigabits = u64::from_ne_bytes(sum) as f64 * 8.0 / 1e9;
        println!("{gigabits} {} 0 0", begin.elapsed().as_secs_f64());
        return;
    }
    let waiting = (how == "epoll").then(|| Waiting::on(&stream));
    let mut times = Vec::with_capacity(4_000_000);
    let mut word = [7; WORD];
    let mut last = begin;
    while last.duration_since(begin) < TIME {
        stream.write_all(&word).expect("it reads");
        match &waiting {
            Some(waiting) => assert!(waiting.read(&mut stream, &mut word), "it ended"),
            None => stream.read_exact(&mut word).expect("it answers"),
        }
        let now = Instant::now();
        times.push(now.duration_since(last).as_nanos() as u32);
        last = now;
    }
    // The ends find each other in the first of them.
    times.drain(..times.len() / 10);
    let seconds = times.iter().map(|&time| f64::from(time)).sum::<f64>() / 1e9;
    times.sort_unstable();
    let at = |part: usize| f64::from(times[times.len() * part / 100]) / 1e3;
    println!("{} {seconds} {} {}", times.len(), at(50), at(99));
}

/// A set of `epoll` with one stream in it.
struct Waiting(i32);

impl Waiting {
    fn on(stream: &TcpStream) -> Self {
        stream.set_nonblocking(true).expect("it is a socket");
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
        // SAFETY: numbers, and one event.
        unsafe {
            let set = libc::epoll_create1(0);
            assert_eq!(
                libc::epoll_ctl(set, libc::EPOLL_CTL_ADD, stream.as_raw_fd(), &mut event),
                0
            );
            Self(set)
        }
    }

    /// Reads a word when the set says that there is something; `false` at the end.
    fn read(&self, stream: &mut TcpStream, word: &mut [u8; WORD]) -> bool {
        let mut done = 0;
        while done < WORD {
            let mut events = [libc::epoll_event { events: 0, u64: 0 }; 8];
            // SAFETY: room for eight.
            let told = unsafe { libc::epoll_wait(self.0, events.as_mut_ptr(), 8, -1) };
            assert!(told > 0, "nothing was told");
            match stream.read(&mut word[done..]) {
                Ok(0) => return false,
                Ok(got) => done += got,
                Err(why) if why.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => return false,
            }
        }
        true
    }

    fn echo(&self, stream: &mut TcpStream) {
        let mut word = [0; WORD];
        while self.read(stream, &mut word) {
            stream.write_all(&word).expect("the caller is there");
        }
    }
}
