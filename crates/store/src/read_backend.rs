//! Reading what the backends of balancers did.

use super::{Reader, Span, StoreError, read};

/// A row of the table `backend`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BackendRead<'a> {
    /// The end of the interval in Unix time.
    pub(crate) time_ns: i64,
    /// The number of the balancer's host.
    pub(crate) host: i64,
    pub(crate) vip: Option<&'a str>,
    pub(crate) backend: &'a str,
    pub(crate) address: &'a str,
    pub(crate) state: &'a str,
    pub(crate) why: &'a str,
    pub(crate) weight: f64,
    pub(crate) share: f64,
    pub(crate) active: u64,
    pub(crate) pending: u64,
    /// New connections, packets and bytes.
    pub(crate) traffic: Option<[u64; 3]>,
    /// The figures of the response latency.
    pub(crate) count: Option<u64>,
    pub(crate) mean_ns: Option<u64>,
    pub(crate) p99_ns: Option<u64>,
}

impl Reader {
    /// Calls `each` with the rows of backends of a time, the earliest first. Stores of older versions have none.
    pub(crate) fn backends(&self, span: Span, mut each: impl FnMut(&BackendRead<'_>)) -> Result<(), StoreError> {
        if !self.has_backends() {
            return Ok(());
        }
        self.read(|db| {
            let sql = "SELECT time_ns, host_id, vip, backend, address, state, why, weight, share, active, pending,
                    connections, packets, bytes, count, mean_ns, p99_ns
                FROM backend WHERE time_ns > ?1 AND time_ns <= ?2 ORDER BY time_ns, rowid";
            let mut statement = db.prepare(sql)?;
            let mut rows = statement.query([span.0, span.1])?;
            while let Some(row) = rows.next()? {
                let text = |column| Ok::<_, rusqlite::Error>(row.get_ref(column)?.as_str()?);
                let number = |column| read::number(row, column);
                let traffic = [number(11)?, number(12)?, number(13)?];
                each(&BackendRead {
                    time_ns: row.get(0)?,
                    host: row.get(1)?,
                    vip: row.get_ref(2)?.as_str_or_null()?,
                    backend: text(3)?,
                    address: text(4)?,
                    state: text(5)?,
                    why: text(6)?,
                    weight: row.get(7)?,
                    share: row.get(8)?,
                    active: number(9)?.unwrap_or_default(),
                    pending: number(10)?.unwrap_or_default(),
                    traffic: traffic[0].map(|_| traffic.map(Option::unwrap_or_default)),
                    count: number(14)?,
                    mean_ns: number(15)?,
                    p99_ns: number(16)?,
                });
            }
            Ok(())
        })
    }
}
