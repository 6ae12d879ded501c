//! dns: a query and its answer, matched by transaction, question and 5-tuple.

use dwell_engine::rtt::Counter;

use crate::wire::{ETHERNET, Frame, Side, ethernet, frame, run, small, udp};

const PORT: u16 = 5353;

#[derive(Clone)]
struct Message {
    id: u16,
    flags: u16,
    questions: u16,
    name: &'static str,
    kind: u16,
}

fn query(id: u16, name: &'static str) -> Message {
    Message { id, flags: 0x0100, questions: 1, name, kind: 1 }
}

impl Message {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for word in [self.id, self.flags, self.questions, 0, 0, 0] {
            bytes.extend(word.to_be_bytes());
        }
        for label in self.name.split('.') {
            bytes.push(label.len() as u8);
            bytes.extend(label.as_bytes());
        }
        bytes.push(0);
        bytes.extend(self.kind.to_be_bytes());
        bytes.extend(1u16.to_be_bytes());
        bytes
    }

    fn asked(&self, at_ms: f64) -> Frame {
        let ip = udp(Side::Client, PORT, 53, &self.bytes());
        frame(at_ms, ETHERNET, ethernet(&ip))
    }

    /// Returns the same question with the response bit, from the server's `port`.
    fn answered_from(&self, at_ms: f64, port: u16) -> Frame {
        let mut bytes = self.bytes();
        bytes[2] |= 0x80;
        bytes.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 1]);
        let ip = udp(Side::Server, port, PORT, &bytes);
        frame(at_ms, ETHERNET, ethernet(&ip))
    }

    fn answered(&self, at_ms: f64) -> Frame {
        self.answered_from(at_ms, 53)
    }
}

fn measured(scene: impl IntoIterator<Item = Frame>) -> Vec<String> {
    run(&small(), scene).lines()
}

#[test]
fn an_answer_gives_the_time_since_its_query() {
    let question = query(7, "example.org");
    assert_eq!(measured([question.asked(0.0), question.answered(12.5)]), ["dns to server: 12.5 ms at 12.5"]);
}

#[test]
fn a_query_that_was_sent_again_is_answered_from_the_first() {
    let question = query(7, "example.org");
    assert_eq!(
        measured([question.asked(0.0), question.asked(5000.0), question.answered(5020.0), question.answered(5021.0),]),
        ["dns to server: 5020 ms at 5020"]
    );
}

#[test]
fn a_transaction_number_that_returns_after_a_minute_is_a_new_query() {
    let question = query(7, "example.org");
    assert_eq!(
        measured([question.asked(0.0), question.asked(61_000.0), question.answered(61_020.0),]),
        ["dns to server: 20 ms at 61020"]
    );
}

#[test]
fn another_transaction_is_no_answer() {
    let asked = query(7, "example.org").asked(0.0);
    assert!(measured([asked, query(8, "example.org").answered(20.0)]).is_empty());
}

#[test]
fn another_question_is_no_answer() {
    let asked = || query(7, "example.org").asked(0.0);
    assert!(measured([asked(), query(7, "example.com").answered(20.0)]).is_empty());
    let other_kind = Message { kind: 28, ..query(7, "example.org") };
    assert!(measured([asked(), other_kind.answered(20.0)]).is_empty());
}

#[test]
fn letters_fold() {
    assert_eq!(
        measured([query(7, "eXaMpLe.ORG").asked(0.0), query(7, "example.org").answered(20.0),]),
        ["dns to server: 20 ms at 20"]
    );
    // '@' is before 'A', '`' before 'a', '[' after 'Z', '{' after 'z'
    for (asked, answered) in [("a@b", "a`b"), ("a[b", "a{b")] {
        assert!(measured([query(7, asked).asked(0.0), query(7, answered).answered(1.0)]).is_empty());
    }
}

#[test]
fn an_answer_from_another_port_is_no_answer() {
    let question = query(7, "example.org");
    assert!(measured([question.asked(0.0), question.answered_from(20.0, 54)]).is_empty());
    // Between two servers that both use port 53.
    let between = |mut frame: Frame, at: usize| {
        frame.data[at..at + 2].copy_from_slice(&53u16.to_be_bytes());
        frame
    };
    for (port, samples) in [(53, 1), (54, 0)] {
        let scene = [between(question.asked(0.0), 34), between(question.answered_from(20.0, port), 36)];
        assert_eq!(measured(scene).len(), samples, "from port {port}");
    }
}

#[test]
fn several_queries_on_one_port_are_distinguished() {
    let (a, b) = (query(7, "a.example"), query(8, "b.example"));
    assert_eq!(
        measured([a.asked(0.0), b.asked(3.0), b.answered(10.0), a.answered(20.0)]),
        ["dns to server: 7 ms at 10", "dns to server: 20 ms at 20",]
    );
}

#[test]
fn an_answer_without_a_query_opens_nothing() {
    let run = run(&small(), [query(7, "example.org").answered(20.0)]);
    assert_eq!(run.count(Counter::FlowsOpened), 0);
}

#[test]
fn messages_of_other_kinds_are_counted_and_passed_over() {
    let update = Message { flags: 5 << 11, ..query(7, "example.org") };
    let two = Message { questions: 2, ..query(7, "example.org") };
    for message in [update, two] {
        let run = run(&small(), [message.asked(0.0)]);
        assert_eq!(run.count(Counter::OtherProtocol), 1);
    }
}

#[test]
fn a_message_that_is_cut_off_is_counted_as_such() {
    let mut whole = query(7, "example.org").asked(0.0);
    let headers = 14 + 20 + 8;
    while whole.data.len() > headers {
        whole.data.pop();
        let run = run(&small(), [whole.clone()]);
        assert_eq!(run.count(Counter::Truncated), 1, "{} bytes", whole.data.len());
    }
}
