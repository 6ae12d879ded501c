//! Sessions on their way from one server to another.

use std::{
    fmt,
    io::{self, Read, Write},
    time::Duration,
};

use zeroize::Zeroizing;

use crate::sessions::MAX_SESSION_BYTES;

/// The sessions that a server has handed over: they are in no store. Dropping this deletes them.
///
/// Each session has its age with it, so that it expires in time whatever the other server's clock says. But rustls has
/// written into it the second at which its ticket was issued, by the clock of the first server. The other one accepts 0-RTT
/// only if the time since then by its own clock differs by at most 60 s from the age that the client states
/// (`MAX_FRESHNESS_SKEW_MS` of rustls 0.23). Otherwise the session is used up by a handshake that is resumed without 0-RTT.
/// So keep the clocks of both servers within some seconds of each other.
///
/// They can be written to a stream once and read from it once. Whoever reads them twice, or keeps what was written, makes
/// tickets usable twice, and can decrypt their 0-RTT data: use a pipe, a Unix socket or TLS, and never a file.
pub struct HandOver(Vec<HandedSession>);

pub(crate) struct HandedSession {
    pub(crate) id: Vec<u8>,
    pub(crate) secrets: Zeroizing<Vec<u8>>,
    pub(crate) age: Duration,
}

/// How the stream begins, before the version of its format.
const MAGIC: &[u8; 8] = b"sessions";
const VERSION: u8 = 1;
/// Longest ID of a session. Those of rustls have 32 octets.
const MAX_ID_BYTES: usize = 255;
/// Most that is read, in octets of IDs and secrets: six times what the sessions of the default [`Limits`](crate::Limits) take.
const MAX_BYTES: usize = 256 << 20;

impl HandOver {
    pub(crate) fn new(sessions: Vec<HandedSession>) -> HandOver {
        HandOver(sessions)
    }

    pub(crate) fn into_sessions(self) -> Vec<HandedSession> {
        self.0
    }

    /// Returns the number of sessions.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Writes the sessions with their ages. One whose ID is longer than 255 octets is left out.
    ///
    /// # Errors
    ///
    /// Those of the stream. The sessions are lost then.
    pub fn write_to(self, stream: &mut impl Write) -> io::Result<()> {
        let sessions = self.0.into_iter().filter(|session| session.id.len() <= MAX_ID_BYTES);
        let sessions: Vec<HandedSession> = sessions.collect();
        stream.write_all(MAGIC)?;
        stream.write_all(&[VERSION])?;
        stream.write_all(&(sessions.len() as u64).to_be_bytes())?;
        for session in sessions {
            stream.write_all(&[session.id.len() as u8])?;
            stream.write_all(&session.id)?;
            stream.write_all(&(session.secrets.len() as u32).to_be_bytes())?;
            stream.write_all(&session.secrets)?;
            let age_ms = u64::try_from(session.age.as_millis()).unwrap_or(u64::MAX);
            stream.write_all(&age_ms.to_be_bytes())?;
        }
        stream.flush()
    }

    /// Reads what [`HandOver::write_to`] has written.
    ///
    /// # Errors
    ///
    /// Those of the stream, and [`io::ErrorKind::InvalidData`] if it has something else, or more than 256 MiB. No session is taken
    /// over then, as the rest of them is missing.
    pub fn read_from(stream: &mut impl Read) -> io::Result<HandOver> {
        HandOver::read_within(stream, MAX_BYTES)
    }

    fn read_within(stream: &mut impl Read, max_bytes: usize) -> io::Result<HandOver> {
        let (mut sessions, mut left) = (Vec::new(), max_bytes);
        if read::<8>(stream)? != *MAGIC || read::<1>(stream)? != [VERSION] {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "these are not sessions of this version"));
        }
        for _ in 0..u64::from_be_bytes(read(stream)?) {
            let [id_bytes] = read::<1>(stream)?;
            let id = read_bytes(stream, id_bytes.into())?.to_vec();
            let bytes = u32::from_be_bytes(read(stream)?) as usize;
            if bytes > MAX_SESSION_BYTES {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a session is longer than any"));
            }
            left = left.checked_sub(size_of::<HandedSession>() + id.len() + bytes).ok_or_else(|| {
                io::Error::new(io::ErrorKind::InvalidData, format!("the sessions take more than {max_bytes} bytes"))
            })?;
            let secrets = read_bytes(stream, bytes)?;
            let age = Duration::from_millis(u64::from_be_bytes(read(stream)?));
            sessions.push(HandedSession { id, secrets, age });
        }
        Ok(HandOver(sessions))
    }
}

fn read<const BYTES: usize>(stream: &mut impl Read) -> io::Result<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn read_bytes(stream: &mut impl Read, count: usize) -> io::Result<Zeroizing<Vec<u8>>> {
    let mut bytes = Zeroizing::new(vec![0; count]);
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

impl fmt::Debug for HandOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandOver").field("sessions", &self.0.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::{os::unix::net::UnixStream, thread};

    use rustls::server::StoresServerSessions;

    use super::*;
    use crate::{Counts, Limits, SingleUseSessions};

    fn sessions(max_sessions: usize) -> std::sync::Arc<SingleUseSessions> {
        SingleUseSessions::new(Limits { max_sessions, ..Limits::default() })
    }

    fn through_a_socket(handed: HandOver) -> io::Result<HandOver> {
        let (mut near, mut far) = UnixStream::pair()?;
        let writer = thread::spawn(move || handed.write_to(&mut near));
        let read = HandOver::read_from(&mut far);
        writer.join().expect("it does not panic")?;
        read
    }

    #[test]
    fn a_session_is_in_one_store_at_a_time() {
        let (old, new) = (sessions(10), sessions(10));
        for id in 1..=3 {
            old.put(vec![id; 32], vec![id; 400]);
        }
        assert!(old.take(&[2; 32]).is_some());
        let handed = old.hand_over();
        assert_eq!((handed.len(), old.counts().held), (2, 0));
        let handed = through_a_socket(handed).unwrap();
        // On its way it is in neither store.
        assert_eq!((old.take(&[1; 32]), new.take(&[3; 32])), (None, None));
        assert_eq!(new.take_over(handed), 2);
        assert_eq!(new.take(&[1; 32]), Some(vec![1; 400]));
        assert_eq!((new.take(&[1; 32]), new.take(&[2; 32]), old.take(&[3; 32])), (None, None, None));
        // What the server issues after that is its own, and can be handed over later.
        old.put(vec![4; 32], vec![4]);
        assert_eq!(new.take_over(old.hand_over()), 1);
        assert!(old.hand_over().is_empty());
    }

    #[test]
    fn counts_add_up_on_both_sides_of_a_hand_over() {
        let (old, new) = (sessions(10), sessions(2));
        for id in 1..=5 {
            old.put(vec![id; 32], vec![id]);
        }
        old.take(&[1; 32]);
        assert_eq!(new.take_over(old.hand_over()), 4);
        new.put(vec![6; 32], vec![6]);
        let expected = Counts { stored: 5, resumed: 1, handed_over: 4, ..Counts::default() };
        assert_eq!(old.counts(), expected);
        let expected = Counts { held: 2, stored: 5, displaced: 3, ..Counts::default() };
        assert_eq!(new.counts(), expected);
    }

    #[test]
    fn sessions_that_are_taken_over_displace_no_newer_one() {
        let new = SingleUseSessions::new(Limits { max_sessions: 2, ttl: Duration::from_secs(100) });
        for id in 1..=2 {
            new.put(vec![id], vec![id]);
        }
        let age = Duration::from_secs(50);
        let old = HandedSession { id: vec![3], secrets: Zeroizing::new(vec![3]), age };
        new.take_over(HandOver::new(vec![old]));
        let kept = [1, 2, 3].map(|id| new.take(&[id]).is_some());
        assert_eq!(kept, [true, true, false]);
    }

    #[test]
    fn the_newest_fit_and_the_expired_are_left() {
        let new = SingleUseSessions::new(Limits { max_sessions: 2, ttl: Duration::from_secs(100) });
        let aged = |id: u8, seconds| HandedSession {
            id: vec![id],
            secrets: Zeroizing::new(vec![id]),
            age: Duration::from_secs(seconds),
        };
        let handed = HandOver::new(vec![aged(1, 101), aged(2, 99), aged(3, 50), aged(4, 1)]);
        assert_eq!(new.take_over(through_a_socket(handed).unwrap()), 3);
        let kept = [1, 2, 3, 4].map(|id| new.take(&[id]).is_some());
        assert_eq!(kept, [false, false, true, true]);
    }

    #[test]
    fn what_is_cut_off_or_something_else_is_refused() {
        let old = sessions(10);
        old.put(vec![1; 32], vec![1; 40]);
        let mut bytes = Vec::new();
        old.hand_over().write_to(&mut bytes).unwrap();
        for end in 0..bytes.len() {
            assert!(HandOver::read_from(&mut &bytes[..end]).is_err(), "{end}");
        }
        assert_eq!(HandOver::read_from(&mut &bytes[..]).unwrap().len(), 1);
        for at in [0, 8] {
            let mut other = bytes.clone();
            other[at] += 1;
            assert!(HandOver::read_from(&mut &other[..]).is_err());
        }
        let all = size_of::<HandedSession>() + 72;
        assert_eq!(HandOver::read_within(&mut &bytes[..], all).unwrap().len(), 1);
        let error = HandOver::read_within(&mut &bytes[..], all - 1).unwrap_err();
        assert_eq!(error.to_string(), format!("the sessions take more than {} bytes", all - 1));
        // A session whose length says 4 GB.
        bytes[8 + 1 + 8 + 1 + 32] = 0xff;
        assert!(HandOver::read_from(&mut &bytes[..]).is_err());
    }

    /// Sessions of no bytes take memory too, and a stream may announce any number of them.
    #[test]
    fn empty_sessions_are_bounded() {
        let mut bytes = [&MAGIC[..], &[VERSION], &u64::MAX.to_be_bytes()].concat();
        bytes.resize(bytes.len() + 1_000 * 13, 0);
        let error = HandOver::read_within(&mut &bytes[..], 10_000).unwrap_err();
        assert_eq!(error.to_string(), "the sessions take more than 10000 bytes");
    }

    #[test]
    fn debug_output_does_not_contain_sessions() {
        let old = sessions(10);
        old.put(vec![171; 32], vec![205; 32]);
        let output = format!("{:?}", old.hand_over());
        assert!(!output.contains("171") && !output.contains("205"), "{output}");
    }
}
