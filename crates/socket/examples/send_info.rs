//! Sends frames over TCP, and leaves some out while those before wait in the send buffer of this host.
//!
//! `cargo run --example send_info -- ADDRESS:PORT`

use std::{error::Error, net::TcpStream, time::Duration};

use dwell_socket::{Session, table::Config};

const FRAMES: u32 = 300;

/// A frame that would wait longer is of no use.
const LONGEST: Duration = Duration::from_millis(100);

fn main() -> Result<(), Box<dyn Error>> {
    let to = std::env::args().nth(1).ok_or("usage: send_info ADDRESS:PORT")?;
    let stream = TcpStream::connect(to)?;
    let session = Session::start(&Config::default())?;
    let socket = session.watch(&stream)?;
    let frame = vec![0; 40_000];
    let mut left_out = 0;
    for _ in 0..FRAMES {
        if socket.info().sender_waiting.is_some_and(|waiting| waiting > LONGEST) {
            left_out += 1;
        } else {
            socket.send(&frame)?;
        }
        std::thread::sleep(Duration::from_millis(33));
    }
    eprintln!("{left_out} of {FRAMES} frames left out; {:?}", socket.info());
    Ok(())
}
