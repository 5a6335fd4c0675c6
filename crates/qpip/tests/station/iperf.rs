//! The server's side of `iperf3`, as its source (`iperf_api.h`, version 3) has
//! the conversation: one connection for control, and one for data.

use std::cell::RefCell;
use std::rc::Rc;

use super::conversation::{Program, Say};

const COOKIE: usize = 37;
const TEST_START: u8 = 1;
const TEST_RUNNING: u8 = 2;
const TEST_END: u8 = 4;
const PARAM_EXCHANGE: u8 = 9;
const CREATE_STREAMS: u8 = 10;
const EXCHANGE_RESULTS: u8 = 13;
const DISPLAY_RESULTS: u8 = 14;
const IPERF_DONE: u8 = 16;

/// How far the control conversation is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stage {
    #[default]
    Cookie,
    Parameters,
    Streams,
    Running,
    Results,
    Done,
    Over,
}

/// What the two connections of a test share.
#[derive(Debug, Default)]
pub struct Test {
    pub stage: Stage,
    cookie: Vec<u8>,
    /// The server sends.
    pub is_reverse: bool,
    /// Bytes of data that came.
    pub received: u64,
}

/// One of the connections: the first is for control.
pub struct Connection {
    test: Rc<RefCell<Test>>,
    is_control: bool,
    heard: Vec<u8>,
    to_say: Vec<u8>,
    is_known: bool,
}

impl Connection {
    pub fn control(test: &Rc<RefCell<Test>>) -> Self {
        Self::new(test, true)
    }

    pub fn data(test: &Rc<RefCell<Test>>) -> Self {
        Self::new(test, false)
    }

    fn new(test: &Rc<RefCell<Test>>, is_control: bool) -> Self {
        let test = Rc::clone(test);
        Self { test, is_control, heard: Vec::new(), to_say: Vec::new(), is_known: false }
    }

    /// So many bytes, once they are there.
    fn take(&mut self, len: usize) -> Option<Vec<u8>> {
        (self.heard.len() >= len).then(|| self.heard.drain(..len).collect())
    }

    /// A text behind its length.
    fn take_text(&mut self) -> Option<String> {
        let len = u32::from_be_bytes(*self.heard.first_chunk()?) as usize;
        let bytes = self.take(4 + len)?;
        Some(String::from_utf8_lossy(&bytes[4..]).into_owned())
    }

    /// Goes on as far as what was heard allows.
    fn advance(&mut self) -> Option<()> {
        let stage = self.test.borrow().stage;
        let next = match stage {
            Stage::Cookie => {
                self.test.borrow_mut().cookie = self.take(COOKIE)?;
                self.to_say.push(PARAM_EXCHANGE);
                Stage::Parameters
            }
            Stage::Parameters => {
                let text = self.take_text()?;
                let text: String = text.chars().filter(|letter| !letter.is_whitespace()).collect();
                self.test.borrow_mut().is_reverse = text.contains("\"reverse\":true");
                self.to_say.push(CREATE_STREAMS);
                Stage::Streams
            }
            // The connection for data goes on from here.
            Stage::Streams => return None,
            Stage::Running => {
                assert_eq!(self.take(1)?, [TEST_END]);
                self.to_say.push(EXCHANGE_RESULTS);
                Stage::Results
            }
            Stage::Results => {
                self.take_text()?;
                let bytes = self.test.borrow().received;
                let text = format!(
                    "{{\"cpu_util_total\":1,\"cpu_util_user\":1,\"cpu_util_system\":1,\
                      \"sender_has_retransmits\":0,\"streams\":[{{\"id\":1,\"bytes\":{bytes},\
                      \"retransmits\":0,\"jitter\":0,\"errors\":0,\"packets\":0,\
                      \"start_time\":0,\"end_time\":1}}]}}"
                );
                self.to_say.extend((text.len() as u32).to_be_bytes());
                self.to_say.extend(text.bytes());
                self.to_say.push(DISPLAY_RESULTS);
                Stage::Done
            }
            Stage::Done => {
                assert_eq!(self.take(1)?, [IPERF_DONE]);
                Stage::Over
            }
            Stage::Over => return None,
        };
        self.test.borrow_mut().stage = next;
        Some(())
    }
}

impl Program for Connection {
    fn say(&mut self, into: &mut [u8]) -> Say {
        let (stage, is_reverse) = (self.test.borrow().stage, self.test.borrow().is_reverse);
        if !self.is_control {
            return match stage {
                Stage::Running if is_reverse && self.is_known => {
                    into.fill(0x5a);
                    Say::Bytes(into.len())
                }
                // The client reads whole blocks until there are no more.
                Stage::Results | Stage::Done | Stage::Over => Say::End,
                _ => Say::Nothing,
            };
        }
        if stage == Stage::Running && !self.is_known {
            self.is_known = true;
            self.to_say.extend([TEST_START, TEST_RUNNING]);
        }
        let now = self.to_say.len().min(into.len());
        into[..now].copy_from_slice(&self.to_say[..now]);
        self.to_say.drain(..now);
        match now {
            0 if stage == Stage::Over => Say::End,
            0 => Say::Nothing,
            _ => Say::Bytes(now),
        }
    }

    fn hear(&mut self, bytes: &[u8]) {
        if self.is_control {
            self.heard.extend(bytes);
            while self.advance().is_some() {}
            return;
        }
        if self.is_known {
            self.test.borrow_mut().received += bytes.len() as u64;
            return;
        }
        self.heard.extend(bytes);
        if let Some(cookie) = self.take(COOKIE) {
            let mut test = self.test.borrow_mut();
            assert_eq!(cookie, test.cookie, "the data of another test");
            (test.stage, self.is_known) = (Stage::Running, true);
            test.received += self.heard.len() as u64;
        }
    }
}
