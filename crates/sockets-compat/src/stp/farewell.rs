//! [`Farewell`]: how a connection ends when its socket is dropped.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use landfall::stp::{Connection, Operation, Sent};

use crate::linger::see_off;
use crate::waiting::locked;

/// Goes when both directions are gone. What was sent still arrives, and the connection
/// is closed behind it; where something was not read, the other side hears that it is
/// lost, as of a kernel's socket.
pub(super) struct Farewell {
    connection: Connection,
    linger: Duration,
    is_unread: AtomicBool,
    under_way: Mutex<Vec<Operation<Sent>>>,
}

impl Farewell {
    pub(super) fn new(connection: Connection, linger: Duration) -> Self {
        let under_way = Mutex::default();
        Self { connection, linger, is_unread: AtomicBool::new(false), under_way }
    }

    pub(super) fn leave_unread(&self) {
        self.is_unread.store(true, Ordering::Relaxed);
    }

    pub(super) fn leave(&self, under_way: impl Iterator<Item = Operation<Sent>>) {
        locked(&self.under_way).extend(under_way);
    }
}

impl Drop for Farewell {
    fn drop(&mut self) {
        if *self.is_unread.get_mut() {
            self.connection.abort();
            return;
        }
        let under_way = std::mem::take(&mut *locked(&self.under_way));
        let last = Abort(Some(self.connection.clone()));
        see_off(self.linger, async move {
            for operation in under_way {
                // Whether it arrives is nobody's concern any more.
                let _ = operation.await;
            }
            last.close().await;
        });
    }
}

/// A connection that has to close in time.
struct Abort(Option<Connection>);

impl Abort {
    async fn close(mut self) {
        if let Some(connection) = self.0.clone() {
            let _ = connection.close().await;
        }
        self.0 = None;
    }
}

impl Drop for Abort {
    fn drop(&mut self) {
        if let Some(connection) = &self.0 {
            connection.abort();
        }
    }
}
