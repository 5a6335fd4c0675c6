//! A receiver that has taken all may go at once, even before the call has ended that told
//! it of the last: for the sender nothing has failed.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use landfall::clan::Error;
use landfall::clan::layer::{queue, stream};

use crate::lab::Lab;
use crate::pieces;

const MESSAGE: [u8; 8] = *b"the last";

/// While the sender commits, all arrives, the receiver does this, and its node goes.
fn interrupt(lab: &(Lab, Lab), receive: impl FnOnce() + Send + 'static) {
    let (here, there) = lab.clone();
    lab.0.at_next_commit(move || {
        here.deliver_all();
        receive();
        here.deliver_all();
        there.kill();
    });
}

fn batches_of(elements: u32) -> queue::Config {
    queue::Config::new(8, 4).batch(elements, Duration::from_secs(1))
}

#[test]
fn a_queue_whose_receiver_goes_with_the_last_element_is_drained() {
    let lab = Lab::pair(60);
    let (mut sender, mut receiver) = pieces::queue(&lab.0, &lab.1, batches_of(1));
    let taken = Arc::new(Mutex::new([0; 8]));
    let into = Arc::clone(&taken);
    interrupt(&lab, move || {
        assert!(receiver.try_get(&mut *into.lock().unwrap()).unwrap());
    });
    assert!(sender.try_put(&MESSAGE).unwrap(), "there is room");
    assert_eq!(*taken.lock().unwrap(), MESSAGE);
    sender.publish().unwrap();
    sender.drain(None).unwrap();
}

/// It took one of two: that is a failure.
#[test]
fn a_queue_whose_receiver_goes_before_the_last_element_is_not_drained() {
    let lab = Lab::pair(60);
    let (mut sender, mut receiver) = pieces::queue(&lab.0, &lab.1, batches_of(2));
    interrupt(&lab, move || {
        assert!(receiver.try_get(&mut [0; 8]).unwrap());
    });
    assert!(sender.try_put(&MESSAGE).unwrap());
    let put = sender.try_put(&MESSAGE);
    assert!(matches!(put, Err(Error::PeerLost)), "{put:?}");
    let drained = sender.drain(None);
    assert!(matches!(drained, Err(Error::PeerLost | Error::Closed)), "{drained:?}");
}

#[test]
fn a_stream_whose_reader_goes_with_the_last_bytes_is_drained() {
    let lab = Lab::pair(60);
    let (mut writer, mut reader) = pieces::stream(&lab.0, &lab.1, stream::Config::new(64));
    let taken = Arc::new(Mutex::new([0; 8]));
    let into = Arc::clone(&taken);
    interrupt(&lab, move || {
        assert_eq!(reader.read_some(&mut *into.lock().unwrap(), None).unwrap(), 8);
    });
    assert_eq!(writer.write_some(&MESSAGE, None).unwrap(), 8);
    assert_eq!(*taken.lock().unwrap(), MESSAGE);
    writer.drain(None).unwrap();
}
