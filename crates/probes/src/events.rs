//! The ring buffer that programs write events to, and the program that sweeps a flow table.

use std::{cell::RefCell, rc::Rc};

use libbpf_rs::{MapCore, ProgramInput, ProgramMut, RingBuffer, RingBufferBuilder};

use crate::{Error, error::io_error, vantage::failed};

/// Size of struct __sk_buff, and the offsets of its fields (linux/bpf.h, stable ABI).
pub(crate) const SK_BUFF_BYTES: usize = 192;
const SK_BUFF_MARK: usize = 8;
const SK_BUFF_CB: usize = 48;
pub(crate) const SK_BUFF_TSTAMP: usize = 152;

/// A reader of a ring buffer, which decodes its events.
pub(crate) struct Events<E> {
    ring: RingBuffer<'static>,
    queue: Rc<RefCell<Queue<E>>>,
}

/// What was read from the ring buffer and not handed on yet.
struct Queue<E> {
    events: Vec<E>,
    unreadable: u64,
}

impl<E: 'static> Events<E> {
    /// Opens the ring buffer of a map.
    pub fn open(map: &dyn MapCore, decode: impl Fn(&[u8]) -> Option<E> + 'static) -> Result<Events<E>, Error> {
        let queue = Rc::new(RefCell::new(Queue { events: Vec::new(), unreadable: 0 }));
        let filled = Rc::clone(&queue);
        let mut builder = RingBufferBuilder::new();
        builder
            .add(map, move |bytes| {
                let mut queue = filled.borrow_mut();
                match decode(bytes) {
                    Some(event) => queue.events.push(event),
                    None => queue.unreadable += 1,
                }
                0
            })
            .map_err(failed("read", "events"))?;
        let ring = builder.build().map_err(failed("read", "events"))?;
        Ok(Events { ring, queue })
    }

    /// Hands on the events that have arrived, in the order of the ring buffer.
    pub fn drain(&mut self, emit: impl FnMut(E)) -> Result<(), Error> {
        self.consume()?;
        let events = std::mem::take(&mut self.queue.borrow_mut().events);
        events.into_iter().for_each(emit);
        Ok(())
    }

    /// Reads the ring buffer, which makes room in it. The events are kept for [`Events::drain`].
    pub fn consume(&self) -> Result<(), Error> {
        self.ring.consume().map_err(failed("read", "events"))
    }

    /// Drops the events that have arrived.
    pub fn discard(&mut self) -> Result<(), Error> {
        self.drain(drop)
    }

    /// The number of events that could not be decoded: always 0 unless kernel and user space come from different builds.
    pub fn unreadable(&self) -> u64 {
        self.queue.borrow().unreadable
    }
}

/// Sweeps `buckets` buckets of a flow table from `first` on, for a reason of the core. A program that was loaded with
/// `replay` takes `time_ns` for the present.
pub(crate) fn sweep(
    program: &ProgramMut<'_>,
    first: u32,
    buckets: u32,
    reason: u32,
    time_ns: u64,
) -> Result<(), Error> {
    let mut context = [0; SK_BUFF_BYTES];
    for (at, word) in [(SK_BUFF_MARK, reason), (SK_BUFF_CB, first), (SK_BUFF_CB + 4, buckets)] {
        context[at..at + 4].copy_from_slice(&word.to_ne_bytes());
    }
    context[SK_BUFF_TSTAMP..SK_BUFF_TSTAMP + 8].copy_from_slice(&time_ns.to_ne_bytes());
    run(program, &[0; 64], &mut context)
}

/// Runs a program on a packet (BPF_PROG_TEST_RUN).
pub(crate) fn run(program: &ProgramMut<'_>, data: &[u8], context: &mut [u8]) -> Result<(), Error> {
    program
        .test_run(ProgramInput { data_in: Some(data), context_in: Some(context), ..Default::default() })
        .map(drop)
        .map_err(|error| Error::Run(io_error(&error)))
}
