//! What may become of frames on their way, for tests and demonstrations.

use std::collections::VecDeque;
use std::fmt;

use spec_defrag::cut::Piece;

/// What becomes of a frame that was to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It leaves.
    Sent,
    /// It never leaves.
    Lost,
    /// It leaves twice.
    Twice,
    /// It leaves after so many others.
    Later(u16),
}

/// Decides about frames, and holds those that leave later.
#[derive(Default)]
pub(super) struct Fates {
    hook: Option<Box<Hook>>,
    held: VecDeque<(u16, Piece)>,
}

/// Is asked for each frame: its head, and how much follows.
pub(super) type Hook = dyn FnMut(&[u8], u32) -> Fate + Send;

impl Fates {
    pub(super) fn new(hook: Option<Box<Hook>>) -> Self {
        Self { hook, held: VecDeque::new() }
    }

    /// Puts a frame in line, as its fate has it.
    pub(super) fn pass(&mut self, piece: Piece, line: &mut Vec<Piece>) {
        let Some(hook) = &mut self.hook else { return line.push(piece) };
        match hook(&piece.head, piece.payload.len) {
            Fate::Sent => self.push(piece, line),
            Fate::Lost => {}
            Fate::Twice => {
                self.push(piece, line);
                self.push(piece, line);
            }
            Fate::Later(0) => self.push(piece, line),
            Fate::Later(after) => self.held.push_back((after, piece)),
        }
    }

    /// A frame passes those that are held.
    fn push(&mut self, piece: Piece, line: &mut Vec<Piece>) {
        line.push(piece);
        for (after, _) in &mut self.held {
            *after -= 1;
        }
        while let Some(at) = self.held.iter().position(|(after, _)| *after == 0) {
            line.extend(self.held.remove(at).map(|(_, piece)| piece));
        }
    }

    /// Nothing more comes: what is held leaves.
    pub(super) fn flush(&mut self, line: &mut Vec<Piece>) {
        line.extend(self.held.drain(..).map(|(_, piece)| piece));
    }
}

impl fmt::Debug for Fates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fates").field("held", &self.held.len()).finish_non_exhaustive()
    }
}
