//! A tab of the browser: commands with their answers, and the events in between.

use std::collections::VecDeque;
use std::io;

use serde_json::{Value, json};

use super::BrowserError;
use super::event::Event;
use super::pipe::Pipe;

/// Maximum events queued while a command waits for its answer. A page of a thousand objects causes
/// about ten thousand.
const MAX_EVENTS: usize = 100_000;

/// A tab to which this session is attached.
#[derive(Debug)]
pub struct Session {
    pipe: Pipe,
    tab: Option<String>,
    last: u64,
    events: VecDeque<Event>,
}

impl Session {
    /// Opens a tab.
    pub async fn open(pipe: Pipe) -> Result<Self, BrowserError> {
        let mut session = Self { pipe, tab: None, last: 0, events: VecDeque::new() };
        let target = session.call("Target.createTarget", json!({ "url": "about:blank" })).await?;
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = session.call("Target.attachToTarget", attach).await?;
        session.tab = attached["sessionId"].as_str().map(str::to_owned);
        Ok(session)
    }

    /// Calls `method` and returns its answer.
    pub async fn call(&mut self, method: &str, params: Value) -> Result<Value, BrowserError> {
        self.last += 1;
        let mut command = json!({ "id": self.last, "method": method, "params": params });
        if let Some(tab) = &self.tab {
            command["sessionId"] = json!(tab);
        }
        self.pipe.send(&command).await?;
        loop {
            let mut text = self.pipe.receive().await?;
            if text["id"].as_u64() != Some(self.last) {
                self.keep(text)?;
                continue;
            }
            if let Some(why) = text["error"]["message"].as_str() {
                return Err(BrowserError::Refused { method: method.into(), why: why.into() });
            }
            return Ok(text["result"].take());
        }
    }

    /// The next event that has already arrived.
    pub fn kept(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The next event. Cancel-safe: a dropped call loses nothing.
    pub async fn event(&mut self) -> Result<Event, BrowserError> {
        loop {
            if let Some(event) = self.kept() {
                return Ok(event);
            }
            let text = self.pipe.receive().await?;
            self.keep(text)?;
        }
    }

    /// Queues an event. Ignores an answer that nobody waits for.
    fn keep(&mut self, mut text: Value) -> Result<(), BrowserError> {
        let Some(method) = text["method"].as_str().map(str::to_owned) else { return Ok(()) };
        if self.events.len() >= MAX_EVENTS {
            let why = format!("more than {MAX_EVENTS} events wait");
            return Err(io::Error::new(io::ErrorKind::InvalidData, why).into());
        }
        self.events.push_back(Event { method, params: text["params"].take() });
        Ok(())
    }
}
