//! Messages of version 3, where they differ from those of today. Nothing here changes any more.

use serde::{Deserialize, Serialize};

use super::{AgentName, Batch, LossCause, RunId};

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum AgentMessage {
    Hello(Hello),
    Batch(Box<Batch>),
    KeepAlive,
    Leave,
    Enroll,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Hello {
    name: AgentName,
    run: RunId,
    boot: String,
    sync_port: Option<u16>,
    is_past: bool,
    confirmed: u64,
}

impl From<AgentMessage> for super::AgentMessage {
    fn from(message: AgentMessage) -> super::AgentMessage {
        match message {
            AgentMessage::Hello(hello) => super::AgentMessage::Hello(hello.into()),
            AgentMessage::Batch(batch) => super::AgentMessage::Batch(batch),
            AgentMessage::KeepAlive => super::AgentMessage::KeepAlive,
            AgentMessage::Leave => super::AgentMessage::Leave,
            AgentMessage::Enroll => super::AgentMessage::Enroll,
        }
    }
}

impl From<Hello> for super::Hello {
    fn from(Hello { name, run, boot, sync_port, is_past, confirmed }: Hello) -> super::Hello {
        super::Hello { name, run, boot, sync_port, is_past, confirmed, labels: Vec::new() }
    }
}

/// Labels are left out.
impl From<&super::Hello> for Hello {
    fn from(hello: &super::Hello) -> Hello {
        let super::Hello { name, run, boot, sync_port, is_past, confirmed, labels: _ } = hello.clone();
        Hello { name, run, boot, sync_port, is_past, confirmed }
    }
}

/// Returns a batch as version 3 has it, if that differs: newer causes of a loss become the one that is nearest.
pub(super) fn downgraded(batch: &Batch) -> Option<Box<Batch>> {
    let lost = batch.content.lost.filter(|lost| lost.why == LossCause::Moved)?;
    let mut batch = batch.clone();
    batch.content.lost = Some(super::LostBatches { why: LossCause::BufferFull, ..lost });
    Some(Box::new(batch))
}
