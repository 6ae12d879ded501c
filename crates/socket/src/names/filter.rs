//! Which packets the kernel copies: programs of classic BPF, which sees them from the header of IP on.

use nix::libc::{self, sock_filter};

/// The longest answer of DNS that is copied whole.
pub(super) const LONGEST_ANSWER: usize = 16 << 10;
/// What is copied of a segment: the beginning of a request.
pub(super) const LONGEST_REQUEST: usize = 2048;

const LOAD_BYTE: u32 = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
const LOAD_HALF: u32 = libc::BPF_LD | libc::BPF_H | libc::BPF_ABS;
const LOAD_WORD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
const LOAD_BYTE_AFTER: u32 = libc::BPF_LD | libc::BPF_B | libc::BPF_IND;
const LOAD_HALF_AFTER: u32 = libc::BPF_LD | libc::BPF_H | libc::BPF_IND;
const LOAD_WORD_AFTER: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_IND;
const LOAD_HEADER_LENGTH: u32 = libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH;
const LOAD_X: u32 = libc::BPF_LDX | libc::BPF_W | libc::BPF_IMM;
const RECALL: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_MEM;
const REMEMBER: u32 = libc::BPF_ST;
const AND: u32 = libc::BPF_ALU | libc::BPF_AND | libc::BPF_K;
const SHIFT_RIGHT: u32 = libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K;
const ADD_X: u32 = libc::BPF_ALU | libc::BPF_ADD | libc::BPF_X;
const TO_X: u32 = libc::BPF_MISC | libc::BPF_TAX;
const GO: u32 = libc::BPF_JMP | libc::BPF_JA;
const IF_EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
const IF_BITS: u32 = libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K;
const RETURN: u32 = libc::BPF_RET | libc::BPF_K;

/// Where the first bytes of a payload are remembered.
const START: u32 = 0;

const TCP: u32 = 6;
const UDP: u32 = 17;
const DOMAIN: u32 = 53;
/// What of the fragment field of IPv4 says that a packet is not the first fragment.
const LATER_FRAGMENT: u32 = 0x1fff;

/// A packet that this host sends (packet(7)).
const PACKET_OUTGOING: u32 = 4;

const fn instruction(code: u32, (jt, jf): (u8, u8), k: u32) -> sock_filter {
    sock_filter { code: code as u16, jt, jf, k }
}

/// UDP from port 53 over IPv4, and no later fragment.
pub(super) const ANSWERS_V4: [sock_filter; 9] = [
    instruction(LOAD_BYTE, (0, 0), 9),
    instruction(IF_EQUAL, (0, 6), UDP),
    instruction(LOAD_HALF, (0, 0), 6),
    instruction(IF_BITS, (4, 0), LATER_FRAGMENT),
    instruction(LOAD_HEADER_LENGTH, (0, 0), 0),
    instruction(LOAD_HALF_AFTER, (0, 0), 0),
    instruction(IF_EQUAL, (0, 1), DOMAIN),
    instruction(RETURN, (0, 0), LONGEST_ANSWER as u32),
    instruction(RETURN, (0, 0), 0),
];
/// UDP from port 53 over IPv6 without extension headers.
pub(super) const ANSWERS_V6: [sock_filter; 6] = [
    instruction(LOAD_BYTE, (0, 0), 6),
    instruction(IF_EQUAL, (0, 3), UDP),
    instruction(LOAD_HALF, (0, 0), 40),
    instruction(IF_EQUAL, (0, 1), DOMAIN),
    instruction(RETURN, (0, 0), LONGEST_ANSWER as u32),
    instruction(RETURN, (0, 0), 0),
];

/// Returns a program for segments of TCP whose payload begins as a request may: of HTTP/1, HTTP/2, TLS, Redis, PostgreSQL or
/// MySQL. On loopback, where each packet passes twice, it is copied once. No packet takes more than some 55 instructions, and
/// a segment of a transfer some 35.
pub(super) fn requests() -> Vec<sock_filter> {
    /// The first four bytes of methods, and of HTTP/2's preface.
    const WORDS: [&[u8; 4]; 10] =
        [b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC", b"PRI "];
    let mut program = Program::default();
    program.segment();
    program.always(LOAD_WORD_AFTER, 0);
    program.always(REMEMBER, START);
    for word in WORDS {
        program.when(IF_EQUAL, u32::from_be_bytes(*word), To::Accept, To::Next);
    }
    // PostgreSQL: a query or a statement to prepare, shorter than 64 KB.
    program.always(AND, 0xffff_0000);
    program.when(IF_EQUAL, 0x5100_0000, To::Accept, To::Next);
    program.when(IF_EQUAL, 0x5000_0000, To::Accept, To::Next);
    // TLS: the ClientHello.
    program.when(IF_EQUAL, 0x1603_0000, To::Next, To::Skip(2));
    program.always(LOAD_BYTE_AFTER, 5);
    program.when(IF_EQUAL, 1, To::Accept, To::Reject);
    // Redis: an array.
    program.always(RECALL, START);
    program.always(AND, 0xfff0_0000);
    program.when(IF_EQUAL, 0x2a30_0000, To::Accept, To::Next);
    // MySQL: the first packet of a command, which is a query or a statement to prepare.
    program.always(RECALL, START);
    program.when(IF_BITS, 0xff, To::Skip(3), To::Next);
    program.always(LOAD_BYTE_AFTER, 4);
    program.when(IF_EQUAL, 0x03, To::Accept, To::Next);
    program.when(IF_EQUAL, 0x16, To::Accept, To::Next);
    // HTTP/2: a frame of a known type and with known flags. One of no bytes is the end of a request.
    program.always(RECALL, START);
    program.when(IF_BITS, 0xff00_00f0, To::Reject, To::Next);
    program.when(IF_EQUAL, 0, To::Next, To::Skip(2));
    program.always(LOAD_BYTE_AFTER, 4);
    program.when(IF_EQUAL, 1, To::Next, To::Reject);
    program.always(LOAD_BYTE_AFTER, 4);
    program.when(IF_BITS, 0xd2, To::Reject, To::Next);
    program.always(LOAD_BYTE_AFTER, 5);
    program.when(IF_BITS, 0x80, To::Reject, To::Accept);
    program.finish()
}

/// Where a jump goes.
#[derive(Debug, Clone, Copy)]
enum To {
    Next,
    /// Over so many instructions.
    Skip(u8),
    /// Where the packet is copied.
    Accept,
    Reject,
}

/// A program that is being written.
#[derive(Default)]
struct Program {
    steps: Vec<(u32, u32, To, To)>,
}

impl Program {
    fn always(&mut self, code: u32, k: u32) {
        self.steps.push((code, k, To::Next, To::Next));
    }

    fn when(&mut self, code: u32, k: u32, holds: To, fails: To) {
        self.steps.push((code, k, holds, fails));
    }

    /// Goes on with segments of TCP alone: X is where their payload begins.
    fn segment(&mut self) {
        const PROTOCOL: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_PROTOCOL) as u32;
        self.always(LOAD_WORD, PROTOCOL);
        self.when(IF_EQUAL, libc::ETH_P_IPV6 as u32, To::Skip(7), To::Next);
        self.when(IF_EQUAL, libc::ETH_P_IP as u32, To::Next, To::Reject);
        self.always(LOAD_BYTE, 9);
        self.when(IF_EQUAL, TCP, To::Next, To::Reject);
        self.always(LOAD_HALF, 6);
        self.when(IF_BITS, LATER_FRAGMENT, To::Reject, To::Next);
        self.always(LOAD_HEADER_LENGTH, 0);
        self.always(GO, 3);
        self.always(LOAD_BYTE, 6);
        self.when(IF_EQUAL, TCP, To::Next, To::Reject);
        self.always(LOAD_X, 40);
        // The length of the header, in words.
        self.always(LOAD_BYTE_AFTER, 12);
        self.always(AND, 0xf0);
        self.always(SHIFT_RIGHT, 2);
        self.always(ADD_X, 0);
        self.always(TO_X, 0);
    }

    fn finish(mut self) -> Vec<sock_filter> {
        const KIND: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_PKTTYPE) as u32;
        const HARDWARE: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_HATYPE) as u32;
        let accept = self.steps.len();
        self.always(LOAD_WORD, KIND);
        self.when(IF_EQUAL, PACKET_OUTGOING, To::Next, To::Skip(2));
        self.always(LOAD_WORD, HARDWARE);
        self.when(IF_EQUAL, libc::ARPHRD_LOOPBACK.into(), To::Reject, To::Next);
        self.always(RETURN, LONGEST_REQUEST as u32);
        let reject = self.steps.len();
        self.always(RETURN, 0);
        let offset = |at: usize, to: To| match to {
            To::Next => 0,
            To::Skip(steps) => steps,
            To::Accept => (accept - at - 1) as u8,
            To::Reject => (reject - at - 1) as u8,
        };
        let steps = self.steps.iter().enumerate();
        steps
            .map(|(at, (code, k, holds, fails))| instruction(*code, (offset(at, *holds), offset(at, *fails)), *k))
            .collect()
    }
}
