//! One file from process to process over loopback, by plain TCP and by `landfall send`:
//! `copy_compare [MEGABYTES [ROUNDS [FOLDER]]]`, after `cargo build --release`.
//!
//! | way | what it is |
//! | --- | --- |
//! | `nc` | netcat at both ends, from the file and to a file |
//! | `nc \| cat` | the same with a pipe at each end, where `pv` would stand |
//! | `tcp` | this program: read and send 128 KiB, receive and write 128 KiB |
//! | `scp`, `rsync` | over `ssh` with AES-128-GCM, from and to an `sshd` of this program's own |
//! | `landfall` | `landfall send`, which hashes at both ends and compares |
//!
//! They take turns; the ratios are medians over the rounds. The clock runs from the start
//! of the sender until both processes have ended. Every copy is compared with the source,
//! outside of the time. Figures of an idle machine only: both ends share its cores.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

const BUFFER: usize = 128 << 10;
const CODE: &str = "2d8n-x0rv-9k3c-wp5t";

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["tcp-send", file, port] => return tcp_send(file, port),
        ["tcp-receive", file] => return tcp_receive(file),
        _ => {}
    }
    let number = |at: usize, usual: usize| {
        arguments.get(at).map_or(Ok(usual), |text| text.parse().context("a number"))
    };
    let (megabytes, rounds) = (number(0, 2048)?, number(1, 5)?);
    let folder = arguments.get(2).map_or_else(std::env::temp_dir, PathBuf::from);
    let scratch = Scratch(folder.join(format!("copy-compare-{}", std::process::id())));
    fs::create_dir_all(&scratch.0)?;
    let ssh = Ssh::start(&scratch.0)?;
    let bench = Bench { from: scratch.0.join("from"), to: scratch.0.join("to"), megabytes, ssh };
    bench.fill()?;
    bench.compare(rounds)
}

struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

struct Bench {
    from: PathBuf,
    to: PathBuf,
    megabytes: usize,
    ssh: Option<Ssh>,
}

type Method = fn(&Bench) -> Result<Duration>;

impl Bench {
    fn fill(&self) -> Result<()> {
        let mut file = File::create(&self.from)?;
        let mut noise = blake3::Hasher::new().update(b"a source").finalize_xof();
        let mut piece = vec![0; 1 << 20];
        for _ in 0..self.megabytes {
            noise.fill(&mut piece);
            file.write_all(&piece)?;
        }
        Ok(file.sync_all()?)
    }

    fn compare(&self, rounds: usize) -> Result<()> {
        let mut ways: Vec<(&str, Method)> = vec![("tcp", Self::tcp), ("landfall", Self::landfall)];
        if Command::new("nc").arg("-h").stderr(Stdio::null()).stdout(Stdio::null()).status().is_ok()
        {
            ways.push(("nc", Self::nc));
            ways.push(("nc | cat", Self::nc_and_pipes));
        } else {
            println!("no `nc` here: its rows are missing");
        }
        if self.ssh.is_some() {
            ways.extend([("scp", Self::scp as Method), ("rsync", Self::rsync)]);
        } else {
            println!("no `sshd`, `scp` and `rsync` here: their rows are missing");
        }
        let mut seconds: Vec<Vec<f64>> = vec![Vec::new(); ways.len()];
        for round in 0..rounds {
            for ((name, method), seconds) in ways.iter().zip(&mut seconds) {
                let _ = fs::remove_file(&self.to);
                let took = method(self).with_context(|| format!("round {round}, {name}"))?;
                ensure!(self.is_equal()?, "{name} made another file");
                seconds.push(took.as_secs_f64());
                let rate = (self.megabytes << 20) as f64 / took.as_secs_f64() / 1e9;
                println!("round {round}: {name:10} {:.3} s  {rate:.2} GB/s", took.as_secs_f64());
            }
        }
        println!("\n{:10} {:>6}  landfall is this many times as fast", "", "GB/s");
        for ((name, _), theirs) in ways.iter().zip(&seconds) {
            let rates = theirs.iter().map(|taken| (self.megabytes << 20) as f64 / taken / 1e9);
            let ratios = theirs.iter().zip(&seconds[1]).map(|(theirs, ours)| theirs / ours);
            println!("{name:10} {:6.2}  {:.2}", median(rates), median(ratios));
        }
        Ok(())
    }

    fn is_equal(&self) -> Result<bool> {
        let hash = |path: &Path| -> Result<_> {
            let mut hasher = blake3::Hasher::new();
            hasher.update_reader(File::open(path)?)?;
            Ok(hasher.finalize())
        };
        Ok(hash(&self.from)? == hash(&self.to)?)
    }

    fn tcp(&self) -> Result<Duration> {
        let own = std::env::current_exe()?;
        let mut receiver =
            Command::new(&own).arg("tcp-receive").arg(&self.to).stdout(Stdio::piped()).spawn()?;
        let port = first_line(receiver.stdout.take().context("its output")?)?;
        let mut sender = Command::new(&own);
        timed(sender.arg("tcp-send").arg(&self.from).arg(port.trim()), &mut receiver)
    }

    fn landfall(&self) -> Result<Duration> {
        let own = std::env::current_exe()?;
        let landfall = own.parent().and_then(Path::parent).context("a folder")?.join("landfall");
        let folder = self.to.with_extension("d");
        let mut receiver = Command::new(&landfall)
            .env("LANDFALL_CODE", CODE)
            .args(["receive", "--quiet", "--local", "127.0.0.1:0", "--dir"])
            .arg(&folder)
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("{}: cargo build --release makes it", landfall.display()))?;
        let line = first_line(receiver.stderr.take().context("its output")?)?;
        let at = line.trim().strip_prefix("listening on ").context(line.clone())?;
        let mut sender = Command::new(&landfall);
        sender.env("LANDFALL_CODE", CODE);
        sender.args(["send", "--quiet"]).arg(&self.from).arg(at);
        let took = timed(&mut sender, &mut receiver)?;
        fs::rename(folder.join("from"), &self.to)?;
        Ok(took)
    }

    fn nc(&self) -> Result<Duration> {
        self.shell("nc -N 127.0.0.1 $PORT < \"$FROM\"", "nc -l 127.0.0.1 $PORT > \"$TO\"")
    }

    fn nc_and_pipes(&self) -> Result<Duration> {
        let send = "cat \"$FROM\" | nc -N 127.0.0.1 $PORT";
        self.shell(send, "nc -l 127.0.0.1 $PORT | cat > \"$TO\"")
    }

    fn scp(&self) -> Result<Duration> {
        let ssh = self.ssh.as_ref().context("no sshd")?;
        let mut scp = Command::new("scp");
        scp.args(ssh.options()).args(["-q", "-P", &ssh.port]).arg(&self.from);
        alone(scp.arg(format!("127.0.0.1:{}", self.to.display())))
    }

    fn rsync(&self) -> Result<Duration> {
        let ssh = self.ssh.as_ref().context("no sshd")?;
        let shell = format!("ssh -p {} {}", ssh.port, ssh.options().join(" "));
        let mut rsync = Command::new("rsync");
        rsync.args(["--whole-file", "-e", &shell]).arg(&self.from);
        alone(rsync.arg(format!("127.0.0.1:{}", self.to.display())))
    }

    fn shell(&self, send: &str, receive: &str) -> Result<Duration> {
        // Free a moment ago, which is as good as it gets with `nc`.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string();
        let command = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]).env("PORT", &port);
            command.env("FROM", &self.from).env("TO", &self.to);
            command
        };
        let mut receiver = command(receive).spawn()?;
        // It says nothing when it listens.
        thread::sleep(Duration::from_millis(300));
        timed(&mut command(send), &mut receiver)
    }
}

/// An `sshd` of our own, which lets in who has a key of our own.
struct Ssh {
    server: Child,
    port: String,
    key: String,
}

impl Ssh {
    /// None where something of it is not installed.
    fn start(folder: &Path) -> Result<Option<Self>> {
        const SSHD: &str = "/usr/sbin/sshd";
        let is_there = |program| Command::new(program).arg("--version").output().is_ok();
        if !["scp", "rsync", "ssh-keygen", SSHD].into_iter().all(is_there) {
            return Ok(None);
        }
        let [host, own] = ["host-key", "own-key"].map(|name| folder.join(name));
        for key in [&host, &own] {
            let mut make = Command::new("ssh-keygen");
            alone(make.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(key))?;
        }
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string();
        let mut server = Command::new(SSHD);
        server.args(["-D", "-e", "-f", "/dev/null", "-h"]).arg(&host);
        let known = format!("AuthorizedKeysFile={}", own.with_extension("pub").display());
        let listen = format!("ListenAddress=127.0.0.1:{port}");
        let rules = ["StrictModes=no", "PermitRootLogin=yes", "Subsystem=sftp internal-sftp"];
        for rule in rules.into_iter().chain([known.as_str(), listen.as_str(), "PidFile=none"]) {
            server.args(["-o", rule]);
        }
        let server = server.stderr(Stdio::null()).spawn()?;
        let ssh = Self { server, port, key: own.display().to_string() };
        let is_up = (0..50).any(|_| {
            thread::sleep(Duration::from_millis(100));
            TcpStream::connect(format!("127.0.0.1:{}", ssh.port)).is_ok()
        });
        ensure!(is_up, "sshd does not listen on port {}", ssh.port);
        Ok(Some(ssh))
    }

    fn options(&self) -> Vec<&str> {
        let mut options = vec!["-i", &self.key, "-oCiphers=aes128-gcm@openssh.com"];
        options.extend(["-oStrictHostKeyChecking=no", "-oUserKnownHostsFile=/dev/null"]);
        options.push("-oLogLevel=ERROR");
        options
    }
}

impl Drop for Ssh {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// How long a command takes whose other end is a server that goes on.
fn alone(command: &mut Command) -> Result<Duration> {
    let started = Instant::now();
    let status = command.status()?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(started.elapsed())
}

/// From the start of the sender until both have ended.
fn timed(sender: &mut Command, receiver: &mut Child) -> Result<Duration> {
    let started = Instant::now();
    let status = sender.status()?;
    ensure!(status.success(), "the sender failed");
    ensure!(receiver.wait()?.success(), "the receiver failed");
    Ok(started.elapsed())
}

/// Takes the first line; the rest is passed over, so that nobody waits for a reader.
fn first_line(from: impl Read + Send + 'static) -> Result<String> {
    let mut from = BufReader::new(from);
    let mut line = String::new();
    from.read_line(&mut line)?;
    thread::spawn(move || std::io::copy(&mut from, &mut std::io::stderr()));
    Ok(line)
}

fn tcp_send(file: &str, port: &str) -> Result<()> {
    let mut socket = TcpStream::connect(("127.0.0.1", port.parse::<u16>()?))?;
    copy(&mut File::open(file)?, &mut socket)
}

fn tcp_receive(file: &str) -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?.port());
    copy(&mut listener.accept()?.0, &mut File::create(file)?)
}

/// By a buffer of this program: `std::io::copy` would let the kernel do it.
fn copy(from: &mut impl Read, to: &mut impl Write) -> Result<()> {
    let mut buffer = vec![0; BUFFER];
    loop {
        match from.read(&mut buffer)? {
            0 => return Ok(()),
            len => to.write_all(&buffer[..len])?,
        }
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
