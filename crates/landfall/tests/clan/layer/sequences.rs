//! Invariants 1, 5, 7 and 8 for the programming layer: any sequence of calls, over a
//! fabric on which each written word arrives on its own and the peer may die at any
//! moment, gives what a list would give, and no more.

use super::lab::Lab;
use super::support;
use super::support::{bytes, cases};
use landfall::clan::Error;
use landfall::clan::layer::{queue, stream};
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
enum Op {
    Put,
    PutMany(usize),
    Publish,
    Get,
    GetMany(usize),
    Skip,
    Forth(usize),
    Back(usize),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => Just(Op::Put),
        1 => (0_usize..9).prop_map(Op::PutMany),
        1 => Just(Op::Publish),
        4 => Just(Op::Get),
        1 => (0_usize..9).prop_map(Op::GetMany),
        1 => Just(Op::Skip),
        4 => (0_usize..12).prop_map(Op::Forth),
        4 => (0_usize..4).prop_map(Op::Back),
    ]
}

/// How it ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Finish,
    SenderDies,
    ReceiverDies,
}

fn end() -> impl Strategy<Value = End> {
    prop_oneof![Just(End::Finish), Just(End::SenderDies), Just(End::ReceiverDies)]
}

/// A queue beside a list of which only the two ends are counted.
struct Queue {
    sender: queue::Sender<Lab>,
    receiver: queue::Receiver<Lab>,
    size: usize,
    put: u64,
    got: u64,
}

impl Queue {
    fn element(&self, number: u64) -> Vec<u8> {
        bytes(number * 1000, self.size)
    }

    fn apply(&mut self, op: Op, (here, there): (&Lab, &Lab)) -> Result<(), Error> {
        match op {
            Op::Put => {
                let element = self.element(self.put);
                self.put += u64::from(self.sender.try_put(&element)?);
            }
            Op::PutMany(count) => {
                let all = (self.put..self.put + count as u64).flat_map(|nth| self.element(nth));
                let all: Vec<u8> = all.collect();
                self.put += self.sender.try_put_many(&all)? as u64;
            }
            Op::Publish => self.sender.publish()?,
            Op::Get => {
                let mut into = vec![0; self.size];
                if self.receiver.try_get(&mut into)? {
                    assert_eq!(into, self.element(self.got));
                    self.got += 1;
                }
            }
            Op::GetMany(count) => {
                let mut into = vec![0; self.size * count];
                let got = self.receiver.try_get_many(&mut into)?;
                for element in into.chunks(self.size).take(got) {
                    assert_eq!(element, self.element(self.got));
                    self.got += 1;
                }
            }
            Op::Skip => {
                let mut last = [0; 1];
                let there = self.receiver.peek(self.size - 1, &mut last)?;
                assert_eq!(self.receiver.skip()?, there);
                if there {
                    assert_eq!(last[0], self.element(self.got)[self.size - 1]);
                    self.got += 1;
                }
            }
            Op::Forth(words) => here.deliver(words),
            Op::Back(words) => there.deliver(words),
        }
        assert!(self.got <= self.put);
        Ok(())
    }
}

fn unless_busy(result: Result<(), Error>) {
    if let Err(error) = result
        && !matches!(error, Error::Busy)
    {
        panic!("{error}");
    }
}

proptest! {
    #![proptest_config(cases(400))]

    #[test]
    fn a_queue_is_a_list(
        ops in proptest::collection::vec(op(), 0..300),
        size in 1_usize..40,
        capacity in 1_u32..20,
        batch in 1_u32..8,
        way in 1_usize..200,
        end in end(),
    ) {
        let (here, there) = Lab::pair(way);
        let config = queue::Config::new(size as u32, capacity)
            .batch(batch, std::time::Duration::MAX);
        let (sender, receiver) = support::queue(&here, &there, config);
        let mut queue = Queue { sender, receiver, size, put: 0, got: 0 };
        for op in ops {
            unless_busy(queue.apply(op, (&here, &there)));
            prop_assert!(queue.put - queue.got <= u64::from(capacity));
        }
        let wanted = match end {
            End::Finish => queue.put,
            End::SenderDies => { here.kill(); 0 }
            End::ReceiverDies => { there.kill(); queue.put }
        };
        if end == End::ReceiverDies {
            let element = queue.element(queue.put);
            let gone = (0..=capacity).find_map(|_| queue.sender.try_put(&element).err());
            prop_assert!(matches!(gone, Some(Error::PeerLost)));
            return Ok(());
        }
        for _ in 0..100_000 {
            if end == End::Finish {
                unless_busy(queue.sender.finish());
                here.deliver_all();
            }
            match queue.apply(Op::Get, (&here, &there)) {
                Ok(()) | Err(Error::Busy) => {}
                Err(error) => {
                    let expected = match end {
                        End::Finish => matches!(error, Error::Closed),
                        _ => matches!(error, Error::PeerLost),
                    };
                    prop_assert!(expected, "{error}");
                    prop_assert!(queue.got >= wanted);
                    return Ok(());
                }
            }
        }
        prop_assert!(false, "the receiver was never told of the end");
    }

    #[test]
    fn a_stream_is_its_bytes(
        steps in proptest::collection::vec((0_usize..100, 0_usize..100, 0_usize..12, 0_usize..4), 0..150),
        words in 1_u64..30,
        way in 1_usize..200,
        end in end(),
    ) {
        let (here, there) = Lab::pair(way);
        let (mut writer, mut reader) = support::stream(&here, &there, stream::Config::new(words * 8));
        let all = bytes(5, 100 * 150);
        let (mut put, mut got) = (0, 0);
        let mut read = |reader: &mut stream::Reader<Lab>, len: usize| {
            let mut into = vec![0; len];
            let count = reader.try_read(&mut into)?.unwrap_or(0);
            assert_eq!(into[..count], all[got..got + count]);
            got += count;
            Ok::<_, Error>(got)
        };
        for (write, take, forth, back) in steps {
            match writer.try_write(&all[put..put + write]) {
                Ok(count) => put += count.unwrap_or(0),
                Err(error) => unless_busy(Err(error)),
            }
            here.deliver(forth);
            there.deliver(back);
            match read(&mut reader, take) {
                Ok(got) => prop_assert!(got <= put && put - got <= words as usize * 8),
                Err(error) => unless_busy(Err(error)),
            }
        }
        match end {
            End::Finish => {}
            End::SenderDies => here.kill(),
            End::ReceiverDies => {
                there.kill();
                let gone = (0..2).find_map(|_| writer.try_write(&vec![0; words as usize * 8 + 1]).err());
                prop_assert!(matches!(gone, Some(Error::PeerLost)));
                return Ok(());
            }
        }
        for _ in 0..100_000 {
            if end == End::Finish {
                match writer.finish() {
                    Ok(()) | Err(Error::Busy) => here.deliver_all(),
                    Err(error) => prop_assert!(false, "{error}"),
                }
            }
            match read(&mut reader, 64) {
                Ok(_) | Err(Error::Busy) => {}
                Err(Error::Closed) if end == End::Finish => {
                    prop_assert_eq!(read(&mut reader, 0).unwrap(), put);
                    return Ok(());
                }
                Err(Error::PeerLost) if end == End::SenderDies => return Ok(()),
                Err(error) => prop_assert!(false, "{error}"),
            }
        }
        prop_assert!(false, "the reader was never told of the end");
    }
}
