//! The steps of a program of the kernel's packet filter: what they test, and where they lead.
//! What a frame has to be is the filter's to say.

/// One step of the program before jumps have their distances.
#[derive(Clone, Copy)]
pub(super) struct Step {
    code: u32,
    operand: u32,
    yes: Target,
    no: Target,
}

/// Where a step leads.
#[derive(Clone, Copy)]
pub(super) enum Target {
    Next,
    /// Over this many steps.
    Skip(usize),
    Accept,
    Reject,
}

/// Where the program ends.
pub(super) struct Targets {
    pub(super) accept: usize,
    pub(super) reject: usize,
}

impl Step {
    const fn load(code: u32, operand: u32) -> Self {
        Self { code, operand, yes: Target::Next, no: Target::Next }
    }

    /// What loads nothing and jumps nowhere.
    pub(super) const fn plain(code: u32, operand: u32) -> Self {
        Self::load(code, operand)
    }

    pub(super) const fn byte(at: u32) -> Self {
        Self::load(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, at)
    }

    /// What the kernel knows beside the bytes of the frame.
    pub(super) const fn ancillary(what: libc::c_int) -> Self {
        Self::word((libc::SKF_AD_OFF + what).cast_unsigned())
    }

    pub(super) const fn half(at: u32) -> Self {
        Self::load(libc::BPF_LD | libc::BPF_H | libc::BPF_ABS, at)
    }

    pub(super) const fn word(at: u32) -> Self {
        Self::load(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at)
    }

    /// X becomes the length of the IPv4 header that starts there.
    pub(super) const fn header_length(at: u32) -> Self {
        Self::load(libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH, at)
    }

    pub(super) const fn half_behind_header(at: u32) -> Self {
        Self::load(libc::BPF_LD | libc::BPF_H | libc::BPF_IND, at)
    }

    const fn jump(test: u32, operand: u32, yes: Target, no: Target) -> Self {
        Self { code: libc::BPF_JMP | test | libc::BPF_K, operand, yes, no }
    }

    pub(super) const fn must_be(value: u32) -> Self {
        Self::jump(libc::BPF_JEQ, value, Target::Next, Target::Reject)
    }

    pub(super) const fn must_lack(bits: u32) -> Self {
        Self::jump(libc::BPF_JSET, bits, Target::Reject, Target::Next)
    }

    pub(super) const fn must_have(bits: u32) -> Self {
        Self::jump(libc::BPF_JSET, bits, Target::Next, Target::Reject)
    }

    pub(super) const fn must_not_exceed(value: u32) -> Self {
        Self::jump(libc::BPF_JGT, value, Target::Reject, Target::Next)
    }

    pub(super) const fn skip_if(value: u32, steps: usize) -> Self {
        Self::jump(libc::BPF_JEQ, value, Target::Skip(steps), Target::Next)
    }

    pub(super) const fn skip_if_set(bits: u32, steps: usize) -> Self {
        Self::jump(libc::BPF_JSET, bits, Target::Skip(steps), Target::Next)
    }

    pub(super) const fn accept_unless(value: u32) -> Self {
        Self::jump(libc::BPF_JEQ, value, Target::Next, Target::Accept)
    }

    pub(super) const fn accept_if(value: u32) -> Self {
        Self::jump(libc::BPF_JEQ, value, Target::Accept, Target::Next)
    }

    /// Goes to where what is accepted goes on.
    pub(super) const fn go_on() -> Self {
        Self::jump(libc::BPF_JEQ, 0, Target::Accept, Target::Accept)
    }

    pub(super) const fn accept_only_if(value: u32) -> Self {
        Self::jump(libc::BPF_JEQ, value, Target::Accept, Target::Reject)
    }

    /// What has nowhere to jump.
    pub(super) const fn alone(&self) -> libc::sock_filter {
        instruction(self.code, self.operand)
    }

    pub(super) fn assemble(&self, at: usize, targets: &Targets) -> libc::sock_filter {
        // The longest program has fewer steps than a distance can count.
        let distance = |target| match target {
            Target::Next => 0,
            Target::Skip(steps) => steps as u8,
            Target::Accept => (targets.accept - at - 1) as u8,
            Target::Reject => (targets.reject - at - 1) as u8,
        };
        let (jt, jf) = (distance(self.yes), distance(self.no));
        libc::sock_filter { jt, jf, ..instruction(self.code, self.operand) }
    }
}

pub(super) const fn instruction(code: u32, operand: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: 0, jf: 0, k: operand }
}
