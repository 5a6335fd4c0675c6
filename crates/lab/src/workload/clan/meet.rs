//! How the two sides exchange their cookies, before there is anything to do it with.

use std::io::{BufRead, BufReader, Read, Write};
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use landfall::clan::Cookie;

use crate::style::hex;
use crate::workload::side::OtherSideEnded;

/// The way to the other side.
pub(super) trait Meet {
    /// Gives the own cookies away, and gets as many.
    fn exchange(&mut self, own: &[Cookie]) -> Result<Vec<Cookie>>;

    /// Both have done their last: before that, neither takes its memory away. Who hears
    /// the last word may be faster than the call that says it.
    fn part(&mut self) -> Result<()> {
        self.exchange(&[]).map(drop)
    }
}

/// Between two threads.
pub(super) struct ByChannel {
    pub(super) tell: Sender<Vec<Cookie>>,
    pub(super) hear: Receiver<Vec<Cookie>>,
    pub(super) limit: Duration,
}

impl Meet for ByChannel {
    fn exchange(&mut self, own: &[Cookie]) -> Result<Vec<Cookie>> {
        self.tell.send(own.to_vec()).map_err(|_| OtherSideEnded)?;
        Ok(self.hear.recv_timeout(self.limit).map_err(|_| OtherSideEnded)?)
    }
}

/// Between two processes, over the pipes of the one that was started.
pub(crate) struct ByPipe<R: Read, W: Write> {
    hear: BufReader<R>,
    tell: W,
}

/// The longest line: a report, or a few cookies.
const LONGEST: u64 = 4096;

impl<R: Read, W: Write> ByPipe<R, W> {
    pub(crate) fn new(hear: R, tell: W) -> Self {
        Self { hear: BufReader::new(hear), tell }
    }

    pub(crate) fn say(&mut self, line: &str) -> Result<()> {
        writeln!(self.tell, "{line}").and_then(|()| self.tell.flush()).context("the other process")
    }

    pub(crate) fn hear(&mut self) -> Result<String> {
        let mut line = String::new();
        let mut bounded = (&mut self.hear).take(LONGEST);
        let len = bounded.read_line(&mut line).context("the other process")?;
        if len == 0 {
            return Err(OtherSideEnded.into());
        }
        Ok(line.trim_end().to_owned())
    }
}

impl<R: Read, W: Write> Meet for ByPipe<R, W> {
    fn exchange(&mut self, own: &[Cookie]) -> Result<Vec<Cookie>> {
        let words: Vec<_> = own.iter().map(|cookie| hex(&cookie.to_bytes())).collect();
        self.say(&words.join(" "))?;
        self.hear()?.split_whitespace().map(parse).collect()
    }
}

fn parse(word: &str) -> Result<Cookie> {
    let mut bytes = [0; Cookie::LEN];
    ensure!(word.len() == 2 * bytes.len() && word.is_ascii(), "`{word}` is no cookie");
    for (byte, at) in bytes.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(&word[at..at + 2], 16)?;
    }
    Ok(Cookie::from_bytes(&bytes)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_cross_a_pipe_unharmed_and_nothing_else_does() {
        use landfall::clan::{Fabric, Rights, Threads};
        let (node, _) = Threads::pair().unwrap();
        let (_local, cookie) = node.expose(64, Rights::Write).unwrap();
        let line = format!("{}\n", hex(&cookie.to_bytes()));
        let mut pipe = ByPipe::new(line.as_bytes(), Vec::new());
        assert_eq!(pipe.exchange(&[cookie]).unwrap(), [cookie]);
        assert_eq!(pipe.tell, line.as_bytes());
        let mut ended = ByPipe::new(&b""[..], Vec::new());
        assert!(ended.exchange(&[cookie]).unwrap_err().is::<OtherSideEnded>());
        let mut noise = ByPipe::new(&b"\xc3\xa9 hello\n"[..], Vec::new());
        assert!(noise.exchange(&[cookie]).is_err());
    }
}
