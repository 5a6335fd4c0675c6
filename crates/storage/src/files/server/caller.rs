//! [`Actor`]: what is made in the name of a caller is made as that caller.

use rustix::process::{Gid, Uid, geteuid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_thread_res_gid,
    set_thread_res_uid,
};

use landfall_files::{Caller, Errno};

/// Whether this process can act for others, and how.
#[derive(Clone, Copy, Debug)]
pub(super) struct Actor {
    /// The capabilities of the superuser; nothing: every request is carried out as the user of
    /// this process.
    powers: Option<CapabilitySets>,
}

/// What a caller's own kernel has decided already: whether it may do it, with groups that are not
/// known here.
const KEPT: CapabilitySet =
    CapabilitySet::DAC_OVERRIDE.union(CapabilitySet::DAC_READ_SEARCH).union(CapabilitySet::FSETID);

const ROOT: Uid = Uid::ROOT;

impl Actor {
    /// That of this process.
    pub(super) fn of_process() -> Self {
        let powers = geteuid().is_root().then(|| capabilities(None).ok()).flatten();
        let needed = KEPT.union(CapabilitySet::SETUID).union(CapabilitySet::SETGID);
        Self { powers: powers.filter(|powers| powers.effective.contains(needed)) }
    }

    /// Makes something in the name of a caller, so that it belongs to it from its beginning.
    pub(super) fn act<T>(
        self,
        caller: Caller,
        make: impl FnOnce() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let Some(powers) = self.powers.filter(|_| (caller.user, caller.group) != (0, 0)) else {
            return make();
        };
        // `-1` would leave what was, which is the superuser.
        if caller.user == u32::MAX || caller.group == u32::MAX {
            return Err(Errno::INVALID);
        }
        let _restored = Restore;
        let group = Gid::from_raw(caller.group);
        set_thread_res_gid(None, group, None).map_err(super::errno)?;
        if caller.user != 0 {
            set_thread_res_uid(None, Uid::from_raw(caller.user), None).map_err(super::errno)?;
            let kept = CapabilitySets { effective: KEPT.intersection(powers.permitted), ..powers };
            set_capabilities(None, kept).map_err(super::errno)?;
        }
        make()
    }
}

/// Makes this thread the superuser again.
struct Restore;

impl Drop for Restore {
    fn drop(&mut self) {
        let is_back = set_thread_res_uid(None, ROOT, None).is_ok()
            && set_thread_res_gid(None, Gid::ROOT, None).is_ok();
        // The saved numbers are the superuser's, to which anyone may go back. On, as somebody
        // else, would be worse than an end.
        assert!(is_back, "a thread cannot become the superuser again");
    }
}
