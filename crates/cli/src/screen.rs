//! A screen on the terminal. However the run ends, by a key, a signal, a failure or a panic, the terminal is then as it was.

use std::{
    io::{BufWriter, IsTerminal, Stdout, stdin, stdout},
    os::fd::AsFd,
    panic,
    sync::{
        Once,
        mpsc::{Receiver, RecvTimeoutError, sync_channel},
    },
    thread,
    time::Duration,
};

use anyhow::anyhow;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use ratatui_core::terminal::{Frame, Terminal};
use ratatui_crossterm::{
    CrosstermBackend,
    crossterm::{
        cursor::Show,
        event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers},
        execute,
        terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode},
    },
};

use crate::exit::{Exit, Failure};

/// What is written to the terminal at once.
const BUFFER_BYTES: usize = 64 << 10;

/// Keys that may wait until they are read.
const KEYS: usize = 64;

/// A screen, which ends when it is dropped.
pub struct Screen {
    terminal: Terminal<CrosstermBackend<BufWriter<Stdout>>>,
    inputs: Receiver<Input>,
}

/// What happened at the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    /// A key was pressed, with what was held down.
    Key(KeyEvent),
    /// Ctrl-C, which is no signal while the screen is there.
    Interrupt,
    /// The terminal has another size now.
    Resized,
    /// Nothing, until the time was over.
    Nothing,
    /// The terminal is gone.
    Closed,
}

impl Screen {
    /// Takes the terminal. `otherwise` says what to do where there is none.
    ///
    /// # Errors
    ///
    /// If standard output is not a terminal.
    pub fn open(otherwise: &str) -> Result<Screen, Failure> {
        Screen::check(otherwise)?;
        let no_terminal = |why: &str| no_terminal(why, otherwise);
        restore_on_panic();
        // From here on, dropping it restores.
        let backend = CrosstermBackend::new(BufWriter::with_capacity(BUFFER_BYTES, stdout()));
        let taken = enable_raw_mode().and_then(|()| execute!(stdout(), EnterAlternateScreen));
        let terminal = taken.and_then(|()| Terminal::new(backend));
        match terminal {
            Ok(terminal) => Ok(Screen { terminal, inputs: inputs() }),
            Err(error) => {
                restore();
                Err(no_terminal(&error.to_string()))
            }
        }
    }

    /// Checks whether there is a terminal to take.
    ///
    /// # Errors
    ///
    /// As [`open`](Screen::open).
    pub fn check(otherwise: &str) -> Result<(), Failure> {
        if !stdout().is_terminal() {
            return Err(no_terminal("standard output is not a terminal", otherwise));
        }
        // Keys come from there where standard input is something else.
        if !stdin().is_terminal() && std::fs::File::open("/dev/tty").is_err() {
            return Err(no_terminal("there is no terminal to read keys from", otherwise));
        }
        Ok(())
    }

    /// Draws one picture. Only what has changed is sent to the terminal.
    ///
    /// # Errors
    ///
    /// If the terminal is gone, which is no failure of the run.
    pub fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> Result<(), Failure> {
        self.terminal.draw(draw).map(drop).map_err(|error| Failure::new(Exit::Done, error))
    }

    /// Waits for a key, at most for `timeout`.
    pub fn wait(&self, timeout: Duration) -> Input {
        if is_hung_up() {
            return Input::Closed;
        }
        match self.inputs.recv_timeout(timeout) {
            Ok(input) => input,
            Err(RecvTimeoutError::Timeout) => Input::Nothing,
            Err(RecvTimeoutError::Disconnected) => Input::Closed,
        }
    }
}

fn no_terminal(why: &str, otherwise: &str) -> Failure {
    Failure::usage(anyhow!("cannot draw a screen: {why}; {otherwise}"))
}

/// Reads what happens at the terminal in a thread of its own: crossterm 0.29 never returns from reading a terminal that is
/// gone. The thread ends with the process.
fn inputs() -> Receiver<Input> {
    let (sender, receiver) = sync_channel(KEYS);
    thread::spawn(move || {
        while let Ok(event) = event::read() {
            let input = match event {
                Event::Key(KeyEvent { code: KeyCode::Char('c'), modifiers, .. })
                    if modifiers.contains(KeyModifiers::CONTROL) =>
                {
                    Input::Interrupt
                }
                Event::Key(key) if key.kind != KeyEventKind::Release => Input::Key(key),
                Event::Resize(..) => Input::Resized,
                _ => continue,
            };
            if sender.send(input).is_err() {
                return;
            }
        }
    });
    receiver
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

/// Gives the terminal back. Nothing can be done where that fails: it is gone.
fn restore() {
    let _ = execute!(stdout(), LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
}

/// The message of a panic would be lost with the screen.
fn restore_on_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            restore();
            usual(panic);
        }));
    });
}

/// Whether the other end of the terminal is closed. Where SIGHUP is ignored, nothing else tells.
fn is_hung_up() -> bool {
    let output = stdout();
    let mut files = [PollFd::new(output.as_fd(), PollFlags::empty())];
    let _ = poll(&mut files, PollTimeout::ZERO);
    files[0].revents().is_some_and(|events| events.intersects(PollFlags::POLLHUP | PollFlags::POLLERR))
}
