//! The suite over HTTP/3 CONNECT, limited to what the library supports.

use std::collections::HashSet;

use ::bytes::Bytes;
use bentpipe_flow::ResetCode;
use bentpipe_masque::{
    Client, ClientConfig, Congestion, Flow, SecretKey, Server, ServerConfig, public_key,
};
use futures_util::future::BoxFuture;

use super::{Stream, Testbed, Transport};

/// A client on the aircraft and a server on the ground.
pub struct OverMasque {
    client: Client,
    server: Server,
}

impl OverMasque {
    /// Starts both with the default settings, except the congestion controller. Keys and
    /// certificates come from the operating system's randomness, so two runs differ in their bytes.
    pub fn start(testbed: &Testbed, seed: u64, congestion: Congestion) -> Result<Self, String> {
        let (air, ground) = (SecretKey::new([1; 32]), SecretKey::new([2; 32]));
        let server_key = public_key(&ground);
        let mut server = ServerConfig::new(ground, HashSet::from([public_key(&air)]));
        server.transport.congestion = congestion;
        let mut client = ClientConfig::new(testbed.ground.local_addr(), server_key, air);
        client.transport.congestion = congestion;
        let wrong = |error: bentpipe_masque::StartError| error.to_string();
        let (ground_seed, air_seed) = (2 * seed, 2 * seed + 1);
        Ok(Self {
            server: Server::start(server, testbed.ground.quic(ground_seed)).map_err(wrong)?,
            client: Client::connect(client, testbed.air.quic(air_seed)).map_err(wrong)?,
        })
    }
}

impl Transport for OverMasque {
    fn open(&self, number: u16, first: Bytes) -> BoxFuture<'_, Result<Box<dyn Stream>, String>> {
        Box::pin(async move {
            self.client.connected().await;
            // HTTP does not allow port 0.
            let authority = format!("origin.example:{}", number + 1);
            let flow = self.client.open(&authority, 2, u32::from(number), first);
            Ok(Box::new(flow) as Box<dyn Stream>)
        })
    }

    fn accept(&self) -> BoxFuture<'_, Option<(u16, Box<dyn Stream>)>> {
        Box::pin(async {
            loop {
                let incoming = self.server.accept().await?;
                let number = u16::try_from(incoming.passenger).ok()?;
                // A flow that has been reset cannot be answered.
                if let Ok(flow) = incoming.accept().await {
                    return Some((number, Box::new(flow) as Box<dyn Stream>));
                }
            }
        })
    }

    fn heard_as(&self, code: ResetCode) -> ResetCode {
        bentpipe_masque::from_h3_code(bentpipe_masque::h3_code(code))
    }

    fn fault(&self) -> Option<String> {
        None // quinn does not report its memory
    }
}

impl Stream for Flow {
    fn reset(&mut self, code: ResetCode) {
        Flow::reset(self, code);
    }

    fn reset_code(&self) -> Option<ResetCode> {
        Flow::reset_code(self)
    }
}
