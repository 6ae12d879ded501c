//! The ring buffer that programs leave events in, and the program that sweeps a
//! flow table.

use std::{cell::RefCell, rc::Rc};

use libbpf_rs::{MapCore, ProgramInput, ProgramMut, RingBuffer, RingBufferBuilder};

use crate::{Error, error::io_error, vantage::failed};

/// Size of struct __sk_buff, and where its fields are (linux/bpf.h, stable ABI).
pub(crate) const SK_BUFF_BYTES: usize = 192;
const SK_BUFF_MARK: usize = 8;
const SK_BUFF_CB: usize = 48;

/// Decoded events of a ring buffer.
pub(crate) struct Events<E> {
    ring: RingBuffer<'static>,
    arrived: Rc<RefCell<Vec<E>>>,
    unreadable: Rc<RefCell<u64>>,
}

impl<E: 'static> Events<E> {
    /// Of a map.
    pub fn of(map: &dyn MapCore, decode: impl Fn(&[u8]) -> Option<E> + 'static) -> Result<Events<E>, Error> {
        let arrived = Rc::new(RefCell::new(Vec::new()));
        let unreadable = Rc::new(RefCell::new(0));
        let (queue, strange) = (Rc::clone(&arrived), Rc::clone(&unreadable));
        let mut builder = RingBufferBuilder::new();
        builder
            .add(map, move |bytes| {
                match decode(bytes) {
                    Some(event) => queue.borrow_mut().push(event),
                    None => *strange.borrow_mut() += 1,
                }
                0
            })
            .map_err(failed("read", "events"))?;
        let ring = builder.build().map_err(failed("read", "events"))?;
        Ok(Events { ring, arrived, unreadable })
    }

    /// Hands on the events that have arrived, in the order of the ring buffer.
    pub fn drain(&mut self, mut emit: impl FnMut(E)) -> Result<(), Error> {
        self.consume()?;
        self.arrived.borrow_mut().drain(..).for_each(&mut emit);
        Ok(())
    }

    /// Makes room in the ring buffer.
    pub fn consume(&self) -> Result<(), Error> {
        self.ring.consume().map_err(failed("read", "events"))
    }

    /// Forgets those that have arrived.
    pub fn discard(&mut self) -> Result<(), Error> {
        self.drain(drop)
    }

    /// Events that could not be read: always 0 unless kernel and user space
    /// come from different builds.
    pub fn unreadable(&self) -> u64 {
        *self.unreadable.borrow()
    }
}

/// Sweeps so many buckets from one on, with this reason.
pub(crate) fn sweep(program: &ProgramMut<'_>, first: u32, buckets: u32, reason: u32) -> Result<(), Error> {
    let mut context = [0; SK_BUFF_BYTES];
    for (at, word) in [(SK_BUFF_MARK, reason), (SK_BUFF_CB, first), (SK_BUFF_CB + 4, buckets)] {
        context[at..at + 4].copy_from_slice(&word.to_ne_bytes());
    }
    run(program, &[0; 64], &mut context)
}

/// Runs a program over a packet (BPF_PROG_TEST_RUN).
pub(crate) fn run(program: &ProgramMut<'_>, data: &[u8], context: &mut [u8]) -> Result<(), Error> {
    program
        .test_run(ProgramInput { data_in: Some(data), context_in: Some(context), ..Default::default() })
        .map(drop)
        .map_err(|error| Error::Run(io_error(&error)))
}
