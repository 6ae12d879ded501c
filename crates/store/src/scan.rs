//! The rows of latencies, which several threads read at once.

use std::{
    mem,
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread,
};

use rusqlite::params;

use crate::{Reader, Span, StoreError, read::POSSIBLE, read_latency::LatencyRead};

/// Latencies are looked up in the index of times where less than one in so many parts of the time is wanted.
const INDEXED_PART: i64 = 4;
/// How they are looked up there.
const BY_TIME: &str = "INDEXED BY latency_by_time";
/// Rows below which one thread is enough.
const FEW_ROWS: i64 = 50_000;
const MOST_THREADS: usize = 4;
/// A batch of rows is passed on when it has so many, or so many bytes.
const BATCH_ROWS: usize = 512;
const BATCH_BYTES: usize = 1 << 18;
/// Batches of a thread that wait.
const WAITING: usize = 4;

/// What a thread reads: rows whose number or time is after the first and not after the second.
type Part = (i64, i64);

impl Reader {
    /// Calls `each` with the latencies of a time, in no order, but in the same each time on one machine.
    pub(crate) fn latencies(&self, span: Span, mut each: impl FnMut(&LatencyRead<'_>)) -> Result<(), StoreError> {
        if !self.has_latencies() {
            return Ok(());
        }
        let (first, last): (i64, i64) = self.read(|db| {
            let whole =
                "SELECT ifnull((SELECT min(rowid) FROM latency), 0), ifnull((SELECT max(rowid) FROM latency), 0)";
            db.query_row(whole, [], |row| Ok((row.get(0)?, row.get(1)?)))
        })?;
        let index = self.latency_index(span)?;
        let is_indexed = index == BY_TIME;
        let (column, whole) = if is_indexed { ("time_ns", span) } else { ("rowid", (first.saturating_sub(1), last)) };
        let sql = format!(
            "SELECT time_ns, host_id, type, what, flow_id, names_id, prefix, prefix_name, method, count, mean_ns,
                valid, histogram FROM latency {index}
                WHERE {column} > ?1 AND {column} <= ?2 AND +time_ns > ?3 AND +time_ns <= ?4"
        );
        // Nobody else can open a file without a name.
        let has_name = self.db.path().is_some_and(|path| !path.is_empty());
        let threads = match has_name && !is_indexed && last.saturating_sub(first) >= FEW_ROWS {
            true => thread::available_parallelism().map_or(1, |threads| threads.get().min(MOST_THREADS)),
            false => 1,
        };
        match threads {
            1 => self.part(&sql, whole, span, each),
            _ => self.parts(&sql, &split(whole, threads), span, &mut each),
        }
    }

    /// Returns how rows of latencies of a time are found: to go through the table is faster than to go through its index, unless
    /// most of it is of other times.
    pub(crate) fn latency_index(&self, span: Span) -> Result<&'static str, StoreError> {
        let whole_ns: i64 = self.read(|db| {
            let [first, last] =
                ["min", "max"].map(|end| format!("(SELECT {end}(time_ns) FROM latency WHERE {POSSIBLE})"));
            db.query_row(&format!("SELECT ifnull({last} - {first}, 0)"), [], |row| row.get(0))
        })?;
        let is_indexed = span.1.saturating_sub(span.0) < whole_ns / INDEXED_PART;
        Ok(if is_indexed { BY_TIME } else { "NOT INDEXED" })
    }

    fn part(
        &self,
        sql: &str,
        part: Part,
        span: Span,
        mut each: impl FnMut(&LatencyRead<'_>),
    ) -> Result<(), StoreError> {
        self.read(|db| {
            let mut statement = db.prepare(sql)?;
            let mut rows = statement.query(params![part.0, part.1, span.0, span.1])?;
            while let Some(row) = rows.next()? {
                let number =
                    |column| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(column)?.map(i64::cast_unsigned));
                each(&LatencyRead {
                    time_ns: row.get(0)?,
                    host: row.get(1)?,
                    kind: row.get_ref(2)?.as_str()?,
                    what: row.get_ref(3)?.as_str()?,
                    flow: row.get(4)?,
                    names: row.get(5)?,
                    prefix: row.get_ref(6)?.as_str_or_null()?,
                    prefix_name: row.get_ref(7)?.as_str_or_null()?,
                    method: row.get_ref(8)?.as_str_or_null()?,
                    count: number(9)?,
                    mean_ns: number(10)?,
                    valid: row.get(11)?,
                    histogram: row.get_ref(12)?.as_blob_or_null()?,
                });
            }
            Ok(())
        })
    }

    /// Reads each part in a thread of its own, which has a connection of its own. That may see a later state of the store: rows
    /// that this reader does not see are left out by their numbers. Batches are taken in turn, so that their order does not
    /// depend on who is faster.
    fn parts(
        &self,
        sql: &str,
        parts: &[Part],
        span: Span,
        each: &mut impl FnMut(&LatencyRead<'_>),
    ) -> Result<(), StoreError> {
        let path = self.path.as_path();
        thread::scope(|scope| {
            let (mut batches, mut threads) = (Vec::new(), Vec::new());
            for part in parts {
                let (sender, receiver) = sync_channel(WAITING);
                batches.push(receiver);
                threads.push(scope.spawn(move || send(&Reader::open(path)?, sql, *part, span, &sender)));
            }
            while !batches.is_empty() {
                batches
                    .retain(|receiver: &Receiver<Batch>| receiver.recv().map(|batch| batch.each(&mut *each)).is_ok());
            }
            threads.into_iter().try_for_each(|thread| thread.join().expect("reading does not panic"))
        })
    }
}

/// Divides what is to be read.
fn split((from, to): Part, parts: usize) -> Vec<Part> {
    let parts = parts as i64;
    let length = to.saturating_sub(from) / parts;
    let begin = |part| if part == parts { to } else { from + part * length };
    (0..parts).map(|part| (begin(part), begin(part + 1))).collect()
}

fn send(reader: &Reader, sql: &str, part: Part, span: Span, to: &SyncSender<Batch>) -> Result<(), StoreError> {
    let mut batch = Batch::default();
    reader.part(sql, part, span, |read| {
        batch.push(read);
        if batch.rows.len() >= BATCH_ROWS || batch.bytes.len() >= BATCH_BYTES {
            // It is received as long as there is somebody to tell.
            let _ = to.send(mem::take(&mut batch));
        }
    })?;
    let _ = to.send(batch);
    Ok(())
}

/// Rows that one thread has read for another.
#[derive(Default)]
struct Batch {
    rows: Vec<BatchRow>,
    /// Their texts and their histograms, one after the other.
    text: String,
    bytes: Vec<u8>,
}

struct BatchRow {
    /// All but texts and histogram.
    figures: LatencyRead<'static>,
    /// The lengths of its texts, and of its histogram.
    texts: [Option<usize>; 5],
    histogram: Option<usize>,
}

impl Batch {
    fn push(&mut self, read: &LatencyRead<'_>) {
        let texts = [Some(read.kind), Some(read.what), read.prefix, read.prefix_name, read.method];
        texts.into_iter().flatten().for_each(|text| self.text.push_str(text));
        self.bytes.extend_from_slice(read.histogram.unwrap_or_default());
        let LatencyRead { time_ns, host, flow, names, count, mean_ns, valid, .. } = *read;
        let (prefix, prefix_name, method, histogram) = (None, None, None, None);
        let (kind, what) = ("", "");
        self.rows.push(BatchRow {
            figures: LatencyRead {
                time_ns,
                host,
                kind,
                what,
                flow,
                names,
                prefix,
                prefix_name,
                method,
                count,
                mean_ns,
                valid,
                histogram,
            },
            texts: texts.map(|text| text.map(str::len)),
            histogram: read.histogram.map(<[u8]>::len),
        });
    }

    fn each(&self, mut each: impl FnMut(&LatencyRead<'_>)) {
        let (mut text, mut bytes) = (self.text.as_str(), self.bytes.as_slice());
        for BatchRow { figures, texts, histogram } in &self.rows {
            let [kind, what, prefix, prefix_name, method] = texts.map(|length| {
                let (own, rest) = text.split_at(length?);
                text = rest;
                Some(own)
            });
            let histogram = histogram.map(|length| {
                let (own, rest) = bytes.split_at(length);
                bytes = rest;
                own
            });
            let (kind, what) = (kind.unwrap_or_default(), what.unwrap_or_default());
            each(&LatencyRead { kind, what, prefix, prefix_name, method, histogram, ..*figures });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_of_all_that_is_read_and_do_not_overlap() {
        for (whole, parts) in [((0, 10), 3), ((-5, 100), 4), ((7, 7), 2), ((0, 1), 4)] {
            let all = split(whole, parts);
            assert!(all.len() == parts && all.windows(2).all(|two| two[0].1 == two[1].0), "{all:?}");
            assert_eq!((all[0].0, all[parts - 1].1), whole);
        }
    }
}
