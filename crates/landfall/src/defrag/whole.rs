//! Datagrams that the kernel cuts.

use landfall_inet::{ethernet, udp};
use landfall_placement::InternetSum;
use landfall_transport::memory::Pins;
use landfall_transport::scatter::{CutError, Long, MOST_OUTGOING};
use spec_defrag::Head;

use super::datagram::{Datagrams, piece_of, udp_at};
use super::error::Error;
use super::registered::Part;
use super::sender::{CutBy, Outgoing, Sender, wait_for_room};

impl Sender {
    /// Puts a datagram in line for the kernel.
    pub(super) fn line_up_whole(
        &mut self,
        datagrams: &mut Datagrams,
        part: &Part,
    ) -> Result<(), Error> {
        let head = datagrams.next_unfinished(part.len())?;
        self.admit(&head, head.len() as u64 + u64::from(part.len()))?;
        self.whole.push((head, part.span));
        if self.whole.len() == MOST_OUTGOING { self.flush() } else { Ok(()) }
    }

    /// Hands datagrams over; where the kernel does not cut them, they are cut here.
    pub(super) fn flush_whole(&mut self) -> Result<(), Error> {
        let whole = std::mem::take(&mut self.whole);
        let mut gone = 0;
        let mut since = None;
        while gone < whole.len() {
            let Some(cutting) = &mut self.parts.cutting else {
                self.cut_here(&whole[gone..])?;
                break;
            };
            let mtu = self.parts.mtu;
            let packets: Vec<_> = whole[gone..]
                .iter()
                .map(|(head, payload)| {
                    let is_ipv4 = is_ipv4(head);
                    let (udp_at, piece) = (udp_at(is_ipv4), piece_of(is_ipv4, mtu));
                    Long { head, payload: *payload, udp_at, piece }
                })
                .collect();
            let now = self.clock.now();
            match cutting.send(now, &packets) {
                Ok(0) => {
                    if now.since(*since.get_or_insert(now)) > self.parts.patience {
                        return Err(Error::Stuck(self.parts.patience));
                    }
                    let again = cutting.poll_timeout().map(|at| self.clock.until(at));
                    wait_for_room(cutting.interest(), again)?;
                }
                Ok(sent) => {
                    (gone, since) = (gone + sent, None);
                    self.stats.packets += sent as u64;
                    self.stats.cut_by_kernel += sent as u64;
                }
                Err(CutError::Broken(error)) => return Err(error.into()),
                // It never will, on this interface.
                Err(CutError::Refused(_)) if self.parts.cut_by == CutBy::Auto => {
                    self.parts.cutting = None;
                }
                Err(error) => return Err(Error::NotCut(error)),
            }
        }
        // The memory of the list is used again.
        self.whole = whole;
        self.whole.clear();
        Ok(())
    }

    /// Finishes the checksums of datagrams and cuts them.
    fn cut_here(&mut self, whole: &[(Head, landfall_placement::Span)]) -> Result<(), Error> {
        let mut sums = Pins::new(&self.parts.regions);
        for (head, payload) in whole {
            let mut head = *head;
            finish(&mut head, sums.sum(&[*payload])?);
            let body = Part { span: *payload, table: self.table() };
            self.line_up_admitted(&Outgoing { head: &head, body })?;
        }
        Ok(())
    }
}

fn is_ipv4(head: &[u8]) -> bool {
    head[12..14] == ethernet::IPV4.to_be_bytes()
}

/// The checksum of a datagram that has the sum of the pseudo-header in its place.
fn finish(head: &mut Head, payload: InternetSum) {
    let at = usize::from(udp_at(is_ipv4(head)));
    let mut sum = InternetSum::new();
    sum.add(&head[at..]);
    sum.append(payload);
    let checksum = udp::Header::sum_field(sum.checksum());
    let at = at + usize::from(udp::SUM_OFFSET);
    head.as_mut_slice()[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
}
