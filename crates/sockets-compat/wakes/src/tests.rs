//! What each step says and leaves behind when nothing else happens meanwhile. Every order of the
//! steps of several threads is in `models`.

use std::cell::Cell;

use super::{
    Bed, End, RoomWatchers, RoomWish, Shortcut, Waiters, Wishes, certain_by_tcp, drop_rings,
    rings_may_go, sleeps_for_bytes, somebody_may_need_a_ring, stops_watching, watches,
};

/// An end of which each answer can be chosen.
#[derive(Default)]
struct Fake {
    wishes: Wishes,
    waiters: Waiters,
    shortcut: Shortcut,
    woken_by_memory: Cell<u32>,
    room_watchers: RoomWatchers,
    has_bytes: Cell<bool>,
    wishes_for_room: Cell<u32>,
    has_room: Cell<bool>,
    is_switched: Cell<bool>,
    is_locked: Cell<bool>,
    queued: Cell<usize>,
}

impl End for Fake {
    fn wishes(&self) -> &Wishes {
        &self.wishes
    }
    fn waiters(&self) -> &Waiters {
        &self.waiters
    }
    fn room_watchers(&self) -> &RoomWatchers {
        &self.room_watchers
    }
    fn shortcut(&self) -> &Shortcut {
        &self.shortcut
    }
    fn wakes_by_memory(&self) {
        self.woken_by_memory.set(self.woken_by_memory.get() + 1);
    }
    fn has_bytes(&self) -> bool {
        self.has_bytes.get()
    }
    fn wants_room(&self) {
        self.wishes_for_room.set(self.wishes_for_room.get() + 1);
    }
    fn has_room(&self) -> bool {
        self.has_room.get()
    }
    fn is_sending_switched(&self) -> bool {
        self.is_switched.get()
    }
    fn is_being_received(&self) -> bool {
        self.is_locked.get()
    }
    fn queued(&self) -> usize {
        self.queued.get()
    }
    fn discard(&self, bytes: usize) {
        self.queued.set(self.queued.get() - bytes);
    }
}

#[test]
fn one_ring_fulfils_all_wishes_and_the_next_needs_a_new_one() {
    let wishes = Wishes::default();
    assert!(!wishes.are_any() && !wishes.fulfil(), "nobody wishes");
    wishes.make();
    wishes.make();
    assert!(wishes.are_any());
    assert!(wishes.fulfil(), "one ring for both");
    assert!(!wishes.are_any() && !wishes.fulfil(), "and none after it");
    wishes.make();
    assert!(wishes.fulfil());
}

#[test]
fn a_connection_begins_with_one_wish() {
    let wishes = Wishes::default();
    wishes.begin();
    assert!(wishes.are_any() && wishes.fulfil() && !wishes.fulfil());
}

#[test]
fn a_wish_that_is_taken_back_leaves_those_of_others() {
    let wishes = Wishes::default();
    let (mine, theirs) = (wishes.make(), wishes.make());
    wishes.take_back(mine);
    assert!(wishes.are_any(), "another one stands");
    wishes.take_back(theirs);
    assert!(!wishes.are_any() && !wishes.fulfil());
    wishes.take_back(theirs);
    assert!(!wishes.are_any(), "there is none to take");
}

#[test]
fn a_wish_that_was_fulfilled_is_none_of_those_that_stand_now() {
    let wishes = Wishes::default();
    let old = wishes.make();
    assert!(wishes.fulfil());
    let new = wishes.make();
    wishes.take_back(old);
    assert!(wishes.are_any(), "the new one stands");
    assert!(wishes.fulfil());
    let newer = wishes.make();
    wishes.take_back(new);
    assert!(wishes.are_any(), "so does the one after two rings");
    wishes.take_back(newer);
    assert!(!wishes.are_any());
}

#[test]
fn a_wish_for_room_is_fulfilled_once_and_only_by_enough() {
    let wish = RoomWish::default();
    assert_eq!(wish.fulfil(|| true), 0, "nobody wants it");
    wish.make(0b001);
    wish.make(0b101);
    assert_eq!(wish.fulfil(|| false), 0, "too little: the wish stays");
    assert_eq!(wish.fulfil(|| true), 0b101, "all ways that were named, each once");
    assert_eq!(wish.fulfil(|| true), 0);
}

#[test]
fn room_is_not_measured_where_nobody_wants_it() {
    assert_eq!(RoomWish::default().fulfil(|| unreachable!("nobody wants room")), 0);
}

#[test]
fn sleepers_and_watchers_are_counted() {
    let waiters = Waiters::default();
    assert!(!waiters.has_sleepers());
    waiters.adds_watcher();
    assert_eq!((waiters.count(), waiters.has_sleepers()), (1, false));
    waiters.adds_sleeper();
    waiters.adds_sleeper();
    assert_eq!((waiters.count(), waiters.has_sleepers()), (3, true));
    assert!(!waiters.loses_sleeper(), "one is left");
    assert!(waiters.loses_sleeper(), "that was the last");
    assert_eq!((waiters.count(), waiters.has_sleepers()), (1, false));
    waiters.loses_watcher();
    assert_eq!(waiters.count(), 0);
}

#[test]
fn none_is_left_of_waiters_that_are_gone() {
    let waiters = Waiters::default();
    waiters.adds_sleeper();
    waiters.adds_watcher();
    waiters.are_gone();
    assert_eq!((waiters.count(), waiters.has_sleepers()), (0, false));
}

#[test]
fn who_watches_for_bytes_is_counted_and_wishes_until_it_stops() {
    let end = Fake::default();
    let watch = watches(&end, true, false, 0);
    assert!(watch.is_sure && end.wishes.are_any() && somebody_may_need_a_ring(&end));
    assert!(!end.room_watchers.are_any() && end.wishes_for_room.get() == 0);
    stops_watching(&end, watch);
    assert!(!end.wishes.are_any() && !somebody_may_need_a_ring(&end));
}

#[test]
fn who_watches_for_room_says_so_and_wishes_for_no_bytes() {
    let end = Fake::default();
    let (one, other) = (watches(&end, false, true, 0), watches(&end, false, true, 0));
    assert_eq!((end.waiters.count(), end.wishes_for_room.get()), (2, 2));
    assert!(end.room_watchers.are_any() && !end.wishes.are_any());
    stops_watching(&end, one);
    assert!(end.room_watchers.are_any() && somebody_may_need_a_ring(&end));
    stops_watching(&end, other);
    assert!(!end.room_watchers.are_any() && !somebody_may_need_a_ring(&end));
}

#[test]
fn a_watch_beside_one_who_receives_is_not_sure() {
    let end = Fake::default();
    end.is_locked.set(true);
    assert!(!watches(&end, true, false, 0).is_sure);
}

#[test]
fn who_finds_bytes_does_not_sleep() {
    let end = Fake::default();
    end.has_bytes.set(true);
    assert_eq!(
        sleeps_for_bytes(&end, false, |_| unreachable!("there are bytes")),
        (None::<()>, true)
    );
    assert!(!end.wishes.are_any() && !end.waiters.has_sleepers());
}

#[test]
fn who_sleeps_is_counted_and_wishes_meanwhile() {
    let end = Fake::default();
    for is_locked in [false, true] {
        end.is_locked.set(is_locked);
        let slept = sleeps_for_bytes(&end, false, |bed| {
            assert!(end.wishes.are_any() && end.waiters.has_sleepers());
            bed
        });
        assert_eq!(slept, (Some(Bed::Tcp { is_sure: !is_locked }), true));
        assert!(!end.wishes.are_any() && !end.waiters.has_sleepers());
    }
    end.waiters.adds_sleeper();
    assert_eq!(sleeps_for_bytes(&end, false, |_| ()), (Some(()), false), "another one sleeps");
}

#[test]
fn rings_may_go_at_once_where_nobody_sleeps_and_else_at_the_65th_look() {
    let end = Fake::default();
    assert!(rings_may_go(&end) && rings_may_go(&end));
    end.waiters.adds_watcher();
    for _ in 0..2 {
        assert_eq!((0..64).filter(|_| rings_may_go(&end)).count(), 0, "64 looks they stay");
        assert!(rings_may_go(&end), "and are counted anew after that");
    }
}

#[test]
fn rings_are_dropped_where_nobody_may_need_them() {
    let end = Fake::default();
    end.queued.set(3);
    end.has_bytes.set(true);
    drop_rings(&end);
    assert_eq!(end.queued.get(), 0);
    assert!(!end.wishes.are_any(), "and nobody has to be rung");
}

#[test]
fn without_rings_nothing_is_told() {
    let end = Fake::default();
    end.waiters.adds_sleeper();
    drop_rings(&end);
    assert!(!end.wishes.are_any());
}

#[test]
fn rings_for_sleepers_stay_while_bytes_wait_and_go_with_a_new_wish() {
    let end = Fake::default();
    end.waiters.adds_sleeper();
    end.queued.set(3);
    end.has_bytes.set(true);
    drop_rings(&end);
    assert_eq!(end.queued.get(), 3, "they tell of bytes");
    end.has_bytes.set(false);
    drop_rings(&end);
    assert_eq!(end.queued.get(), 0);
    assert!(end.wishes.are_any(), "the next bytes ring again");
    assert_eq!(end.wishes_for_room.get(), 0, "nobody waits for room");
}

#[test]
fn rings_for_room_stay_while_there_is_some_and_go_with_a_new_wish() {
    let end = Fake::default();
    let _watch = watches(&end, false, true, 0);
    for (is_switched, has_room, stay, wishes_for_room) in
        [(true, true, 2, 2), (true, false, 0, 3), (false, true, 0, 3)]
    {
        end.queued.set(2);
        end.is_switched.set(is_switched);
        end.has_room.set(has_room);
        drop_rings(&end);
        let left = (end.queued.get(), end.wishes_for_room.get());
        assert_eq!(left, (stay, wishes_for_room), "by memory: {is_switched}, room: {has_room}");
    }
}

#[test]
fn without_watchers_for_room_it_is_not_looked_at() {
    let end = Fake::default();
    end.waiters.adds_sleeper();
    end.queued.set(1);
    end.is_switched.set(true);
    end.has_room.set(true);
    drop_rings(&end);
    assert_eq!((end.queued.get(), end.wishes_for_room.get()), (0, 0));
}

#[test]
fn what_came_before_the_switch_is_certain_and_nothing_behind_it() {
    let unmeasured = || unreachable!("the way is known");
    assert_eq!(certain_by_tcp(40, unmeasured, || Some(100)), Some(60));
    assert_eq!(certain_by_tcp(99, unmeasured, || Some(100)), Some(1));
    assert_eq!(certain_by_tcp(100, unmeasured, || Some(100)), None);
    assert_eq!(certain_by_tcp(101, unmeasured, || Some(100)), None);
    assert_eq!(certain_by_tcp(40, || 7, || None), Some(7), "TCP alone: all that lies there");
}

#[test]
fn a_switch_while_the_queue_is_measured_bounds_what_is_certain() {
    let switched = Cell::new(None);
    let measure = || {
        switched.set(Some(50));
        7
    };
    assert_eq!(certain_by_tcp(48, measure, || switched.get()), Some(2));
}

#[test]
fn a_shortcut_wakes_those_who_have_joined_it_alone() {
    let number = |shortcut: &Shortcut| shortcut.of_all().map_or(0, |number| number.get());
    let shortcut = Shortcut::default();
    assert!(shortcut.joins(7).is_agreed && shortcut.joins(7).is_agreed);
    assert_eq!(number(&shortcut), 7);
    assert!(!shortcut.joins(8).is_agreed);
    assert_eq!(number(&shortcut), 0, "two that are not one");
    shortcut.leaves();
    assert!(!shortcut.joins(7).is_agreed, "the one who sleeps by TCP is not known to be gone");
    (0..5).for_each(|_| shortcut.leaves());
    assert!(shortcut.joins(8).is_agreed, "all are gone, and nobody twice");
    assert_eq!(number(&shortcut), 8);
    shortcut.is_given_up();
    assert_eq!(number(&shortcut), 0);
    shortcut.all_are_gone();
    assert!(shortcut.joins(9).is_agreed);
}

#[test]
fn who_sleeps_by_memory_is_woken_when_another_sleeps_otherwise() {
    let end = Fake::default();
    let slept = sleeps_for_bytes(&end, true, |bed| {
        assert_eq!(bed, Bed::Memory);
        assert_eq!(sleeps_for_bytes(&end, true, |bed| bed).0, Some(Bed::Memory));
        assert_eq!(end.woken_by_memory.get(), 0);
        let watch = watches(&end, true, false, 7);
        assert_eq!(end.woken_by_memory.get(), 1);
        // From now on all sleep by TCP.
        assert_eq!(sleeps_for_bytes(&end, true, |bed| bed).0, Some(Bed::Tcp { is_sure: true }));
        stops_watching(&end, watch);
        assert_eq!(end.woken_by_memory.get(), 1);
    });
    assert_eq!(slept, (Some(()), true));
    assert_eq!(sleeps_for_bytes(&end, true, |bed| bed).0, Some(Bed::Memory));
}
