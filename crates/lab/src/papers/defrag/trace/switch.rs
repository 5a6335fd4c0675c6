//! The switch between the stations: it stores frames at the port where they came
//! in, and serves its inputs in turn, as crossbars do; or it forwards frames in the
//! order in which they came.

use std::collections::VecDeque;

use landfall_placement::Instant;
use landfall_simnet::{Frame, Node, Outbox, PortId};

/// In which order frames for one station leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    /// One from each input that has some, in turn.
    InTurn,
    /// First come, first served.
    InOrder,
}

/// A store-and-forward switch. The station with address `n` is at port `n`.
#[derive(Debug)]
pub(crate) struct Switch {
    service: Service,
    outputs: Vec<Output>,
}

/// Frames for one station, by the port where they came in.
#[derive(Debug, Default)]
struct Output {
    inputs: Vec<VecDeque<Frame>>,
    /// The input that is served next.
    turn: usize,
}

impl Switch {
    pub(crate) fn new(service: Service, ports: usize) -> Self {
        let output = || Output { inputs: vec![VecDeque::new(); ports], turn: 0 };
        Self { service, outputs: (0..ports).map(|_| output()).collect() }
    }

    /// Gives the transmitter its next frame, if it is idle.
    fn serve(&mut self, port: PortId, out: &mut Outbox<'_>) {
        let Some(output) = self.outputs.get_mut(usize::from(port.0)) else { return };
        if out.has_room(port)
            && let Some(frame) = output.next()
        {
            out.send(port, frame);
        }
        if output.inputs.iter().any(|input| !input.is_empty()) {
            out.call_when_room(port);
        }
    }
}

impl Output {
    fn next(&mut self) -> Option<Frame> {
        let inputs = self.inputs.len();
        let first =
            (self.turn..self.turn + inputs).find(|n| !self.inputs[n % inputs].is_empty())?;
        self.turn = (first + 1) % inputs;
        self.inputs[first % inputs].pop_front()
    }
}

impl Node for Switch {
    fn handle_frame(&mut self, _: Instant, from: PortId, frame: Frame, out: &mut Outbox<'_>) {
        // The last byte of the destination is the number of the station.
        let to = PortId(frame.bytes.get(5).copied().unwrap_or(u8::MAX).into());
        let Some(output) = self.outputs.get_mut(usize::from(to.0)) else { return };
        let input = match self.service {
            Service::InTurn => usize::from(from.0),
            Service::InOrder => 0,
        };
        output.inputs[input].push_back(frame);
        self.serve(to, out);
    }

    fn handle_room(&mut self, _: Instant, port: PortId, out: &mut Outbox<'_>) {
        self.serve(port, out);
    }
}
