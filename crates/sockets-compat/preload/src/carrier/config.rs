//! What the operator has said: one word and its value in each line.
//!
//! `landfall carry` writes these lines out of its options, and this reads them.

use std::fs::File;
use std::io::Read;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::str::FromStr;
use std::time::Duration;

use landfall_socket_rules::Transport;

/// So long a file may be that holds a key.
const LONGEST_KEY: u64 = 64 * 1024;
/// A shorter key could be guessed.
const SHORTEST_KEY: usize = 16;
/// How long connections may take to end, unless the operator says so.
const USUAL_DRAIN: Duration = Duration::from_secs(10);

/// What a carrier is like.
pub(super) struct Config {
    pub(super) over: Transport,
    /// Where other carriers reach it, by UDP.
    pub(super) listen: SocketAddr,
    /// The port of UDP at which others are reached.
    pub(super) port: u16,
    /// For queue pairs: all other carriers.
    pub(super) peers: Vec<SocketAddr>,
    /// This many connections at a time.
    pub(super) most: usize,
    /// Connections may take so long to end after a signal.
    pub(super) drain: Duration,
    pub(super) key: [u8; 32],
}

impl FromStr for Config {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut over = None;
        let mut listen = None;
        let (mut port, mut peers, mut most, mut key) = (None, Vec::new(), 256, None);
        let mut drain = USUAL_DRAIN;
        for line in text.lines() {
            let (word, value) = line.split_once('=').ok_or_else(|| format!("`{line}`"))?;
            let wrong = || format!("{word}={value} makes no sense");
            match word {
                "over" => over = Some(value.parse().map_err(|_| wrong())?),
                "listen" => listen = Some(value.parse::<SocketAddr>().map_err(|_| wrong())?),
                "port" => port = Some(value.parse().map_err(|_| wrong())?),
                "peer" => peers.push(value.parse().map_err(|_| wrong())?),
                "most" => most = value.parse().map_err(|_| wrong())?,
                "drain" => {
                    let seconds: u32 = value.parse().map_err(|_| wrong())?;
                    drain = Duration::from_secs(seconds.into());
                }
                "key" => key = Some(read_key(value)?),
                _ => return Err(format!("`{word}` is not known to this version of the library")),
            }
        }
        let over = over.filter(|transport| matches!(transport, Transport::Stp | Transport::Qpip));
        let listen = listen.ok_or("it is not said where to listen")?;
        Ok(Self {
            over: over.ok_or("it is not said over what")?,
            listen,
            port: port.unwrap_or(listen.port()),
            peers,
            most,
            drain,
            key: key.ok_or("no file with a key is named")?,
        })
    }
}

/// The key that is in a file which nobody else can read.
fn read_key(path: &str) -> Result<[u8; 32], String> {
    let failed = |why| format!("{path}: {why}");
    let file = File::open(path).map_err(failed)?;
    let mode = file.metadata().map_err(failed)?.permissions().mode();
    if mode & 0o077 != 0 {
        return Err(format!("{path}: others can read this key (chmod 600)"));
    }
    let mut secret = Vec::new();
    file.take(LONGEST_KEY).read_to_end(&mut secret).map_err(failed)?;
    // A line feed at its end is an editor's.
    let secret = secret.trim_ascii_end();
    if secret.len() < SHORTEST_KEY {
        return Err(format!("{path}: a key has at least {SHORTEST_KEY} bytes"));
    }
    Ok(blake3::derive_key("landfall 2026-11 between the carriers of two hosts", secret))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key_file(name: &str, bytes: &[u8], mode: u32) -> String {
        let path = std::env::temp_dir().join(format!("landfall-key-{}-{name}", std::process::id()));
        std::fs::write(&path, bytes).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        path.to_str().unwrap().to_owned()
    }

    #[test]
    fn what_is_said_is_read() {
        let key = key_file("good", b"a key of some length\n", 0o600);
        let text =
            format!("over=qpip\nlisten=10.0.0.1:7\npeer=10.0.0.2:8\nmost=3\ndrain=7\nkey={key}");
        let config: Config = text.parse().unwrap();
        assert_eq!(config.drain, Duration::from_secs(7));
        assert_eq!((config.over, config.most, config.port), (Transport::Qpip, 3, 7));
        assert_eq!(config.peers, ["10.0.0.2:8".parse().unwrap()]);
        std::fs::write(&key, b"a key of some length").unwrap();
        assert_eq!(text.parse::<Config>().unwrap().key, config.key);
        std::fs::write(&key, b"another key of some length").unwrap();
        assert_ne!(text.parse::<Config>().unwrap().key, config.key);
        std::fs::remove_file(key).unwrap();
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let good = key_file("fine", &[7; 32], 0o600);
        let (open, short) = (key_file("open", &[7; 32], 0o640), key_file("short", b"abc\n", 0o600));
        for (text, said) in [
            (format!("over=tcp\nlisten=10.0.0.1:7\nkey={good}"), "over what"),
            (format!("over=stp\nkey={good}"), "where to listen"),
            ("over=stp\nlisten=10.0.0.1:7".to_owned(), "no file with a key"),
            (format!("over=stp\nlisten=10.0.0.1:7\nkey={open}"), "others can read"),
            (format!("over=stp\nlisten=10.0.0.1:7\nkey={short}"), "at least 16"),
            (format!("over=stp\nlisten=10.0.0.1\nkey={good}"), "listen=10.0.0.1 makes"),
            ("drain=-1".to_owned(), "drain=-1 makes no sense"),
            ("speed=9".to_owned(), "`speed` is not known"),
        ] {
            let why = text.parse::<Config>().map(|_| ()).unwrap_err();
            assert!(why.contains(said), "{text}: {why}");
        }
        for file in [good, open, short] {
            std::fs::remove_file(file).unwrap();
        }
    }
}
