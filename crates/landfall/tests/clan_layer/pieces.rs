//! Pairs of each kind, with rings so small that every edge comes soon.

use landfall::clan::Fabric;
use landfall::clan::layer::{message, multipart, publish, queue, rpc, stream};

use crate::support::join;

pub(crate) fn queue<F: Fabric>(
    one: &F,
    two: &F,
    config: queue::Config,
) -> (queue::Sender<F>, queue::Receiver<F>) {
    join(queue::Sender::open(one, config).unwrap(), queue::Receiver::open(two, config).unwrap())
}

pub(crate) fn stream<F: Fabric>(
    one: &F,
    two: &F,
    config: stream::Config,
) -> (stream::Writer<F>, stream::Reader<F>) {
    join(stream::Writer::open(one, config).unwrap(), stream::Reader::open(two, config).unwrap())
}

pub(crate) fn both<F: Fabric>(
    one: &F,
    two: &F,
    config: stream::Config,
) -> (stream::Stream<F>, stream::Stream<F>) {
    let one = stream::Stream::open(one, config).unwrap();
    let two = stream::Stream::open(two, config).unwrap();
    let (to_one, to_two) = (one.cookies(), two.cookies());
    (one.connect(&to_two).unwrap(), two.connect(&to_one).unwrap())
}

pub(crate) fn multipart<F: Fabric>(
    one: &F,
    two: &F,
    config: multipart::Config,
) -> (multipart::Sender<F>, multipart::Receiver<F>) {
    let one = multipart::Sender::open(one, config).unwrap();
    join(one, multipart::Receiver::open(two, config).unwrap())
}

pub(crate) fn message<F: Fabric>(
    one: &F,
    two: &F,
    config: message::Config,
) -> (message::Sender<F>, message::Receiver<F>) {
    join(message::Sender::open(one, config).unwrap(), message::Receiver::open(two, config).unwrap())
}

pub(crate) fn rpc<F: Fabric>(
    one: &F,
    two: &F,
    config: rpc::Config,
) -> (rpc::Client<F>, rpc::Server<F>) {
    join(rpc::Client::open(one, config).unwrap(), rpc::Server::open(two, config).unwrap())
}

pub(crate) fn publish<F: Fabric>(
    one: &F,
    two: &F,
    config: publish::Config,
) -> (publish::Publisher<F>, publish::Subscriber<F>) {
    let mut publisher = publish::Publisher::open(one, config).unwrap();
    let subscriber = publish::Subscriber::open(two, config).unwrap();
    publisher.add(&subscriber.cookie()).unwrap();
    let subscriber = subscriber.connect(&publisher.cookie()).unwrap();
    (publisher, subscriber)
}
