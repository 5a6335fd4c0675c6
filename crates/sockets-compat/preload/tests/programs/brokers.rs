//! Programs that carry messages for others: RabbitMQ, which is Erlang; workers of Celery behind
//! redis; and NATS, which is Go, and so is left alone.

use std::path::Path;

use landfall_testbed::{require_namespaces, skip_unless};
use landfall_testkit::trials::count_kills;

use crate::packages;
use crate::test_folder::{Running, TestFolder, Where, each, missing};

fn why_no_packages() -> Option<String> {
    let is_absent = packages("celery", "celery").is_none();
    is_absent.then(|| "needs celery: bash .ci/run tools".to_owned())
}

fn python(ground: &TestFolder, with_library: bool, words: &[&str]) -> Running {
    let packages = packages("celery", "celery").expect("it was looked for").display().to_string();
    let path = format!("{packages}:{}", ground.folder());
    let variables = [("PYTHONPATH", &*path), ("PYTHONDONTWRITEBYTECODE", "1")];
    ground.start_told(with_library, "python3", words, &variables)
}

fn all_came_back(place: Where, mut asks: Running) {
    let said = String::from_utf8_lossy(&asks.output()).into_owned();
    assert_eq!(said.trim(), "all came back", "{place:?}");
}

const AMQP: &str = "\
import amqp, sys, threading
def body(client, turn): return bytes([65 + client, 97 + turn % 26]) * (1 + turn * 977 % 60000)
def talk(client):
    with amqp.Connection('127.0.0.1:' + sys.argv[1]) as connection:
        channel, queue, got = connection.channel(), 'q%d' % client, []
        channel.queue_declare(queue, exclusive=True)
        def came(message):
            got.append(message.body)
            channel.basic_ack(message.delivery_tag)
        for turn in range(60):
            message = amqp.Message(body(client, turn), content_encoding='binary')
            channel.basic_publish(message, routing_key=queue)
        channel.basic_consume(queue, callback=came)
        while len(got) < 60: connection.drain_events(timeout=60)
        assert got == [body(client, turn) for turn in range(60)]
threads = [threading.Thread(target=talk, args=(client,)) for client in range(5)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print('all came back')
";

const AMQP_UNTIL_GONE: &str = "\
import amqp, sys
connection = amqp.Connection('127.0.0.1:' + sys.argv[1])
channel, turn = connection.channel(), 0
channel.queue_declare('gone', exclusive=True)
try:
    while True:
        channel.basic_publish(amqp.Message(b'word'), routing_key='gone')
        assert channel.queue_declare('gone', passive=True).queue == 'gone'
        turn += 1
        if turn == 20: print('asks', flush=True)
except (OSError, amqp.exceptions.AMQPError): print('gone')
";

const RABBITMQ: &str = "/usr/lib/rabbitmq/bin/rabbitmq-server";

/// Its processes find each other through a daemon that outlives them: so they have a namespace of
/// processes of their own, where all end with the first.
fn rabbitmq(ground: &TestFolder, place: Where, port: u16) -> Running {
    let name = format!("rabbitmq-{port}");
    let folder = ground.open_folder(&name);
    let config = format!("listeners.tcp.1 = 127.0.0.1:{port}\nloopback_users = none\n");
    ground.write(&format!("{name}/rabbitmq.conf"), config.as_bytes());
    let [base, config, plugins, pid] =
        ["db", "rabbitmq", "plugins", "pid"].map(|name| format!("{folder}/{name}"));
    let [finder, between] = [(); 2].map(|()| ground.port().to_string());
    let variables = [
        ("ERL_EPMD_PORT", &*finder),
        ("RABBITMQ_DIST_PORT", &between),
        ("RABBITMQ_NODENAME", "landfall@localhost"),
        ("RABBITMQ_MNESIA_BASE", &base),
        ("RABBITMQ_LOG_BASE", &folder),
        ("RABBITMQ_LOGS", "-"),
        ("RABBITMQ_CONFIG_FILE", &config),
        ("RABBITMQ_ENABLED_PLUGINS_FILE", &plugins),
        ("RABBITMQ_PID_FILE", &pid),
    ];
    let apart = ["--pid", "--fork", "--mount-proc", "--kill-child", RABBITMQ];
    let server = ground.start_told(place.server(), "unshare", &apart, &variables);
    ground.wait_for_listener(port);
    server
}

#[test]
fn rabbitmq_keeps_what_it_is_given() {
    require_namespaces!();
    skip_unless!(missing(&["python3", "unshare"]).or_else(why_no_packages));
    skip_unless!((!Path::new(RABBITMQ).exists()).then(|| format!("needs {RABBITMQ}")));
    let ground = TestFolder::new();
    let ask = ground.write("ask.py", AMQP.as_bytes());
    let until_gone = ground.write("until_gone.py", AMQP_UNTIL_GONE.as_bytes());
    // It takes its time to start.
    for place in [Where::Neither, Where::Both] {
        let port = ground.port();
        let number = port.to_string();
        let mut server = rabbitmq(&ground, place, port);
        ground.forget_log();
        all_came_back(place, python(&ground, place.client(), &[&ask, &number]));
        ground.expect_memory(place);
        let asks = || {
            let mut client = python(&ground, place.client(), &[&until_gone, &number]);
            client.until_it_says("asks");
            client
        };
        asks().kill();
        all_came_back(place, python(&ground, place.client(), &[&ask, &number]));
        let mut client = asks();
        server.kill();
        client.ends_well();
        ground.expect_memory(place);
        count_kills("an end of RabbitMQ", 2);
    }
}

const TASKS: &str = "\
import os
from celery import Celery
at = 'redis://127.0.0.1:' + os.environ['REDIS_PORT']
app = Celery('tasks', broker=at + '/0', backend=at + '/1')
@app.task
def repeated(text, count): return text * count
if __name__ == '__main__':
    wanted = [('x%d,' % turn, turn * 97 % 5000) for turn in range(100)]
    from tasks import repeated
    results = [repeated.delay(*words) for words in wanted]
    got = [result.get(timeout=60) for result in results]
    assert got == [text * count for text, count in wanted]
    print('all came back')
";

/// A worker with two processes of its own, and who asks it: both keep connections to redis.
#[test]
fn celery_works_behind_redis() {
    skip_unless!(missing(&["python3", "redis-server"]).or_else(why_no_packages));
    let ground = TestFolder::new();
    let tasks = ground.write("tasks.py", TASKS.as_bytes());
    each(|place| {
        let port = ground.port();
        let number = port.to_string();
        // What the programs of the turn before said at their end.
        ground.forget_log();
        let redis = ["--port", &number, "--save", "", "--dir", ground.folder()];
        let _redis = ground.serve(place, port, "redis-server", &redis);
        let celery = |words: &[&str]| {
            let path = packages("celery", "celery").expect("it was looked for");
            let path = format!("{}:{}", path.display(), ground.folder());
            let variables = [("PYTHONPATH", &*path), ("REDIS_PORT", &number)];
            ground.start_told(place.client(), "python3", words, &variables)
        };
        let worker = ["-m", "celery", "-A", "tasks", "worker", "-c", "2", "-l", "ERROR"];
        let worker = [&worker[..], &["--without-mingle", "--without-gossip"]].concat();
        let mut worker = celery(&worker);
        all_came_back(place, celery(&[&tasks]));
        ground.expect_memory(place);
        worker.signal("TERM");
        worker.ends_well();
    });
}

/// NATS with a client that has the library: a program of Go is as if it were not there.
#[test]
fn nats_is_left_alone() {
    skip_unless!(missing(&["nats-server", "python3"]));
    let ground = TestFolder::new();
    let ask = ground.write("ask.py", NATS.as_bytes());
    each(|place| {
        let port = ground.port();
        let number = port.to_string();
        let words = ["-a", "127.0.0.1", "-p", &number];
        let _server = ground.start(place.server(), "nats-server", &words);
        ground.wait_for_listener(port);
        let said = ground.run_text(place, "python3", &[&ask, &number]);
        assert_eq!(said.trim(), "all came back", "{place:?}");
        let log = ground.log();
        ground.forget_log();
        assert!(!log.contains(": memory: ") && !log.contains("nats-server"), "{log}");
    });
}

const NATS: &str = "\
import socket, sys
stream = socket.create_connection(('127.0.0.1', int(sys.argv[1]))).makefile('rwb')
assert stream.readline().startswith(b'INFO ')
stream.write(b'CONNECT {\"verbose\":false}\\r\\nSUB words 1\\r\\n')
for turn in range(200):
    body = bytes([turn]) * (1 + turn * 977 % 60000)
    stream.write(b'PUB words %d\\r\\n%s\\r\\n' % (len(body), body))
    stream.flush()
    line = stream.readline()
    assert line == b'MSG words 1 %d\\r\\n' % len(body), line
    assert stream.read(len(body) + 2) == body + b'\\r\\n'
print('all came back')
";
