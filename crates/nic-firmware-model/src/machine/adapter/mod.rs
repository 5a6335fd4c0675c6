//! The whole adapter: what joins the wire, the firmware and the host. How the orders of
//! the host are obeyed is in `orders`, and how bytes cross the bus in `moves`.

mod moves;
mod orders;

use landfall_placement::Instant;

use crate::firmware::{Arrival, Firmware, HostMemory, Landed, Stage, Verdict};
use crate::machine::bridge::HostBridge;
use crate::machine::dma::{Bus, Dma};
use crate::machine::inbound::{FrameInfo, FrameProgress, HostWrite, Interrupt, Pending};
use crate::machine::outbound::{Departure, Send};
use crate::machine::parts::{Costs, Parts, Processor};
use crate::machine::requests::{Batch, Posted, Requests};

/// What the host wants of its adapter.
#[derive(Clone, Copy, Debug)]
pub enum HostOrder<C> {
    /// A change of a table.
    Command(C, Option<Posted>),
    /// A frame to be sent, in this slot.
    Send(u16, Option<Posted>),
}

/// What the host is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upcall<R> {
    /// By the firmware.
    Report(R),
    /// A whole frame came: it lies in this buffer, until that is
    /// [given back](Adapter::give_back).
    Frame(u16),
}

/// The adapter takes no more of this now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// What an adapter counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames that came from the wire, lost ones among them.
    pub frames: u64,
    /// Frames that were lost: too long, no slot, or no room for the report.
    pub overruns: u64,
    /// Frames for the host that were lost: it had posted no buffer.
    pub no_buffer: u64,
    /// Payloads that were put in their place.
    pub placed: u64,
    /// Payloads that could not be: the memory is gone.
    pub failed: u64,
    /// Frames that the host got whole.
    pub to_host: u64,
    /// Frames that nobody got.
    pub dropped: u64,
    /// Commands that were obeyed.
    pub commands: u64,
    /// Frames that left.
    pub sent: u64,
    /// Frames that did not: their memory is gone, or nobody knows the way.
    pub unsendable: u64,
    /// Reports that the host must hear of.
    pub told: u64,
    /// How often it was restarted.
    pub restarts: u64,
}

/// A network adapter that runs a firmware.
///
/// After each call of [`arrive`](Self::arrive), [`command`](Self::command),
/// [`send`](Self::send) or [`departed`](Self::departed), and whenever
/// [`poll_timeout`](Self::poll_timeout) says so, [`run`](Self::run) it; then take
/// out what it has for the wire and for the host.
#[derive(Debug)]
pub struct Adapter<'s, F: Firmware> {
    firmware: F,
    parts: Parts<'s, F>,
    costs: Costs,
    bus: Bus,
    /// To the host, and from it; the first does both where there is one.
    dma: [Dma; 2],
    processor: Processor,
    interrupt: Interrupt,
    bridge: HostBridge,
    /// Frames that came wait until then for a command; zero: they do not.
    held_until: Instant,
    counters: Counters,
}

impl<'s, F: Firmware> Adapter<'s, F> {
    /// An adapter that has just been switched on.
    #[must_use]
    pub fn new(firmware: F, parts: Parts<'s, F>, costs: Costs) -> Self {
        Self {
            firmware,
            parts,
            costs,
            bus: Bus::new(costs.bus),
            dma: [Dma::new(costs.dma); 2],
            processor: Processor::new(costs.clock),
            interrupt: Interrupt::new(costs.interrupts),
            bridge: HostBridge::new(costs.bridge),
            held_until: Instant::ZERO,
            counters: Counters::default(),
        }
    }

    // ---- The wire ------------------------------------------------------------

    /// A frame comes. Where there is no slot for it, or would be no room to tell
    /// the host, it is lost whole.
    ///
    /// # Errors
    /// [`Full`]; it was counted.
    pub fn arrive(&mut self, now: Instant, frame: &Arrival<'_>) -> Result<(), Full> {
        self.counters.frames += 1;
        if self.has_room_to_tell() && self.parts.inbound.take_in(frame) {
            self.report_slots();
            return Ok(());
        }
        self.counters.overruns += 1;
        if !self.parts.reports.is_empty() {
            self.interrupt.hurry(now);
        }
        Err(Full)
    }

    /// The frame that leaves next.
    #[must_use]
    pub fn departure(&self) -> Option<Departure<'_>> {
        self.parts.outbound.departure()
    }

    /// The wire has it.
    pub fn departed(&mut self) {
        if self.parts.outbound.departure().is_some() {
            self.counters.sent += 1;
            self.parts.outbound.let_go();
        }
    }

    // ---- The host ------------------------------------------------------------

    /// Returns a command, behind all earlier commands and frames.
    ///
    /// # Errors
    /// [`Full`].
    pub fn command(&mut self, command: F::Command) -> Result<(), Full> {
        if !self.has_room_for_orders() {
            return Err(Full);
        }
        let (mut command, mut batch) = (command, Batch::default());
        self.firmware.post(&mut command, &mut batch);
        let posted = self.parts.requests.post(&batch);
        self.parts.orders.push(HostOrder::Command(command, posted));
        Ok(())
    }

    /// Returns a frame to be sent, behind all earlier commands and frames.
    ///
    /// # Errors
    /// [`Full`]: it is too long, or there is no room now.
    pub fn send(&mut self, send: &Send<'_>) -> Result<(), Full> {
        if self.parts.orders.room() == 0 || !self.parts.requests.has_room_to_ring() {
            return Err(Full);
        }
        let slot = self.parts.outbound.take_in(send).ok_or(Full)?;
        let mut batch = Batch::default();
        self.firmware.post_send(send.from, &mut batch);
        let posted = self.parts.requests.post(&batch);
        if posted.is_some() {
            self.parts.outbound.forget_places(slot);
        }
        self.parts.orders.push(HostOrder::Send(slot, posted));
        Ok(())
    }

    /// Would a command find room?
    #[must_use]
    pub fn has_room_for_orders(&self) -> bool {
        self.parts.orders.room() > 0 && self.parts.requests.has_room()
    }

    /// Would a frame find room? One place is kept for a command.
    #[must_use]
    pub fn has_room_for_frames(&self) -> bool {
        let outbound = &self.parts.outbound;
        self.parts.orders.room() > 1
            && self.parts.requests.has_room_to_ring()
            && outbound.slots.has_room()
            && outbound.sent.room() > outbound.slots.used()
    }

    /// The next thing that the host is told.
    pub fn poll_upcall(&mut self) -> Option<Upcall<F::Report>> {
        self.parts.reports.pop()
    }

    /// A frame in a buffer of the host.
    #[must_use]
    pub fn frame(&self, buffer: u16) -> Option<Arrival<'_>> {
        let FrameInfo { path, from, ecn } = self.parts.buffers.about(buffer)?;
        Some(Arrival { bytes: self.parts.buffers.bytes(buffer), path, from, ecn })
    }

    /// The host is done with a buffer.
    pub fn give_back(&mut self, buffer: u16) {
        self.parts.buffers.free(buffer);
    }

    /// The next ticket of a frame whose memory is not needed any more.
    pub fn poll_sent(&mut self) -> Option<u64> {
        self.parts.outbound.sent.pop()
    }

    /// Does the host hear now that there is something to take out?
    pub fn poll_interrupt(&mut self, now: Instant) -> bool {
        self.interrupt.take(now) || self.interrupt.is_watched()
    }

    /// The firmware is loaded anew. What was under way is forgotten; of what the
    /// host had to send, it is told as if it had been sent.
    pub fn restart(&mut self) {
        self.counters.restarts += 1;
        self.firmware.restart();
        while let Some(order) = self.parts.orders.pop() {
            if let HostOrder::Send(slot, _) = order {
                self.parts.outbound.give_up(slot);
            }
        }
        self.parts.outbound.clear();
        self.parts.inbound.clear();
        self.parts.requests.clear();
        self.parts.reports.clear();
        self.parts.buffers.clear();
        self.dma.iter_mut().for_each(Dma::reset);
        self.processor.reset();
        self.bridge.reset();
        self.held_until = Instant::ZERO;
        self.interrupt.reset();
    }

    // ---- Looking at it -------------------------------------------------------

    /// The firmware.
    #[must_use]
    pub const fn firmware(&self) -> &F {
        &self.firmware
    }

    /// The firmware, to be changed by a test.
    pub const fn firmware_mut(&mut self) -> &mut F {
        &mut self.firmware
    }

    /// What was counted.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The processor, and its account of cycles.
    #[must_use]
    pub const fn processor(&self) -> &Processor {
        &self.processor
    }

    /// The bus.
    #[must_use]
    pub const fn bus(&self) -> &Bus {
        &self.bus
    }

    /// How often the bridge of the host locked.
    #[must_use]
    pub const fn bridge_locks(&self) -> u64 {
        self.bridge.locks()
    }

    /// The DMA engines: to the host, and from it.
    #[must_use]
    pub const fn dma(&self) -> &[Dma; 2] {
        &self.dma
    }

    /// The ring of work requests.
    #[must_use]
    pub const fn requests(&self) -> &Requests<'s> {
        &self.parts.requests
    }

    /// How often the host was interrupted; where it watches, how often it would
    /// have been without coalescing.
    #[must_use]
    pub fn interrupts(&self) -> u64 {
        if self.interrupt.is_watched() { self.counters.told } else { self.interrupt.raised() }
    }

    /// When [`run`](Self::run) or [`poll_interrupt`](Self::poll_interrupt) has something to do next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let Parts { inbound, outbound, .. } = &self.parts;
        let has_work = inbound.has_landed() || self.has_order();
        let work = has_work.then(|| self.processor.free_at());
        let to_look = || Some(self.processor.free_at().max(self.held_until));
        let look = if self.has_arrival() { to_look() } else { None };
        let is_moving = inbound.next_to_land();
        let to_move = || Some(inbound.next_to_move()?.max(self.takes_at()));
        let is_leaving = outbound.next_to_land();
        let to_leave = || Some(outbound.next_to_move()?.1.max(self.dma_out().free_at()));
        [
            work,
            look,
            is_moving,
            to_move(),
            is_leaving,
            to_leave(),
            self.next_fetch(),
            inbound.next_to_tell(),
            self.interrupt.due().filter(|_| !self.interrupt.is_watched()),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    // ---- Its life ------------------------------------------------------------

    /// Does all that is due.
    pub fn run(&mut self, now: Instant, memory: &mut impl HostMemory) {
        loop {
            let mut is_busy = self.finish_moves(now, memory);
            is_busy |= self.begin_moves(now);
            is_busy |= self.fetch(now);
            is_busy |= self.work(now);
            is_busy |= self.say();
            is_busy |= self.tell(now);
            if !is_busy {
                return;
            }
        }
    }

    /// The processor takes up one thing, if it is free: what has landed, before
    /// what the host wants, before what came.
    fn work(&mut self, now: Instant) -> bool {
        if self.processor.free_at() > now {
            return false;
        }
        if self.parts.inbound.has_landed() {
            self.hear_of_landing(now);
        } else if self.has_order() {
            self.obey(now);
        } else if self.has_arrival() && self.held_until <= now {
            self.look_at_arrival(now);
        } else {
            return false;
        }
        true
    }

    /// This many frames that come find a slot now.
    #[must_use]
    pub fn slots_free(&self) -> usize {
        let slots = &self.parts.inbound.slots;
        slots.count().saturating_sub(slots.used())
    }

    /// The firmware hears how full the slots are.
    fn report_slots(&mut self) {
        let slots = &self.parts.inbound.slots;
        self.firmware.fill(slots.used() as u32, slots.count() as u32);
    }

    /// What the firmware has to say by itself is sent.
    fn say(&mut self) -> bool {
        let outbound = &mut self.parts.outbound;
        if !outbound.slots.has_room() || outbound.queue.room() == 0 {
            return false; // It goes on when a frame has left.
        }
        let word = self.firmware.poll_word();
        if let Some(word) = &word {
            outbound.say(word);
        }
        word.is_some()
    }

    fn has_room_to_tell(&self) -> bool {
        self.parts.inbound.promised() < self.parts.reports.room()
    }

    fn has_arrival(&self) -> bool {
        !self.parts.inbound.arrivals.is_empty() && self.parts.inbound.queue.room() > 0
    }

    fn look_at_arrival(&mut self, now: Instant) {
        let inbound = &mut self.parts.inbound;
        let Some(slot) = inbound.arrivals.pop() else { return };
        let Some(FrameInfo { path, from, ecn }) = inbound.slots.about(slot) else { return };
        let Some(spans) = inbound.spans.get_mut(usize::from(slot)) else { return };
        spans.clear();
        let frame = Arrival { bytes: inbound.slots.bytes(slot), path, from, ecn };
        let verdict = self.firmware.receive(&frame, spans, self.processor.begin());
        let done = self.processor.end(now);
        let cargo = match verdict {
            Verdict::Place { at, token } => HostWrite::Payload { slot, at, token },
            Verdict::Host => {
                let about = FrameInfo { path, from, ecn };
                match self.parts.buffers.take(frame.bytes.len(), about) {
                    Some(buffer) => HostWrite::Frame { slot, buffer },
                    None => {
                        self.counters.no_buffer += 1;
                        return inbound.slots.free(slot);
                    }
                }
            }
            Verdict::Drop => {
                self.counters.dropped += 1;
                return inbound.slots.free(slot);
            }
        };
        inbound.queue.push(Pending::new(cargo, done));
    }

    /// What lies before others in the queue, and has landed, is the firmware's
    /// to hear of.
    fn hear_of_landing(&mut self, now: Instant) {
        let nth = self.parts.inbound.landed;
        let Some(pending) = self.parts.inbound.queue.get_mut(nth) else { return };
        let FrameProgress::Moved { is_in_place } = pending.stand else { return };
        let done = if let HostWrite::Payload { slot, token, .. } = pending.cargo {
            self.counters.placed += u64::from(is_in_place);
            self.counters.failed += u64::from(!is_in_place);
            let landed = self.firmware.landed(token, is_in_place, self.processor.begin());
            pending.is_urgent = matches!(landed, Landed::Urgent(_));
            (pending.report, pending.interrupts) = match landed {
                Landed::Silent => (None, false),
                Landed::Noted(report) => (Some(report), false),
                Landed::EventQueue(report) | Landed::Urgent(report) => (Some(report), true),
            };
            self.parts.inbound.slots.free(slot);
            self.processor.end(now)
        } else {
            now
        };
        let is_free = self.costs.report == 0 || pending.report.is_none();
        let until = if is_free {
            done
        } else {
            self.dma[0].begin(done, u64::from(self.costs.report), 1, &mut self.bus)
        };
        pending.stand = FrameProgress::Telling(until);
        self.parts.inbound.landed += 1;
    }

    /// Reports that are due go to the host, in order.
    fn tell(&mut self, now: Instant) -> bool {
        let mut is_busy = false;
        while self.parts.inbound.next_to_tell().is_some_and(|at| at <= now) {
            let Some(first) = self.parts.inbound.retire() else { break };
            is_busy = true;
            let (upcall, interrupts) = match (first.cargo, first.report) {
                (HostWrite::Frame { buffer, .. }, _) => (Upcall::Frame(buffer), true),
                (_, Some(report)) => (Upcall::Report(report), first.interrupts),
                (_, None) => continue,
            };
            self.parts.reports.push(upcall);
            self.report_slots();
            if interrupts {
                self.counters.told += 1;
                self.interrupt.request(now);
            }
            if first.is_urgent {
                self.interrupt.hurry(now);
            }
            // Nothing would ever be told if the ring were full of what need not be.
            if self.parts.reports.len() * 2 >= self.parts.reports.capacity() {
                self.interrupt.hurry(now);
            }
        }
        while self.parts.outbound.is_first_void() {
            self.counters.unsendable += 1;
            self.parts.outbound.let_go();
            is_busy = true;
        }
        is_busy
    }

    /// Cycles that a stage has spent.
    #[must_use]
    pub fn spent(&self, stage: Stage) -> u64 {
        self.processor.spent(stage)
    }
}
