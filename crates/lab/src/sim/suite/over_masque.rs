//! The suite over HTTP/3 CONNECT, as far as the library carries it.

use std::collections::HashSet;

use ::bytes::Bytes;
use bentpipe_gateway::far::masque;
use bentpipe_link::ResetCode;
use bentpipe_masque::{
    Client, ClientConfig, Congestion, Flow, Refusal, SecretKey, Server, ServerConfig, public_key,
};
use futures_util::future::BoxFuture;

use super::{Stream, Transport, World};

/// A client on the aircraft and a server on the ground.
pub struct OverMasque {
    client: Client,
    server: Server,
}

impl OverMasque {
    /// Starts both with the default settings but for the congestion controller. Keys and
    /// certificates are drawn from the operating system, so two runs differ in their bytes.
    pub fn start(world: &World, seed: u64, congestion: Congestion) -> Result<Self, String> {
        let (air, ground) = (SecretKey::new([1; 32]), SecretKey::new([2; 32]));
        let server_key = public_key(&ground);
        let mut server = ServerConfig::new(ground, HashSet::from([public_key(&air)]));
        server.transport.congestion = congestion;
        let mut client = ClientConfig::new(world.ground.local_addr(), server_key, air);
        client.transport.congestion = congestion;
        let wrong = |error: bentpipe_masque::StartError| error.to_string();
        let (ground_seed, air_seed) = (2 * seed, 2 * seed + 1);
        Ok(Self {
            server: Server::start(server, world.ground.quic(ground_seed)).map_err(wrong)?,
            client: Client::connect(client, world.air.quic(air_seed)).map_err(wrong)?,
        })
    }
}

impl Transport for OverMasque {
    fn open(&self, number: u16, first: Bytes) -> BoxFuture<'_, Result<Box<dyn Stream>, String>> {
        Box::pin(async move {
            self.client.connected().await;
            // HTTP has no port 0.
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
                // A flow that was reset meanwhile cannot be answered.
                if let Ok(flow) = incoming.accept().await {
                    return Some((number, Box::new(flow) as Box<dyn Stream>));
                }
            }
        })
    }

    fn heard_as(&self, code: ResetCode) -> ResetCode {
        masque::code(Refusal::from_h3_code(masque::refusal(code).h3_code()))
    }

    fn fault(&self) -> Option<String> {
        None // quinn does not say what it holds
    }
}

impl Stream for Flow {
    fn reset(&mut self, code: ResetCode) {
        Flow::reset(self, masque::refusal(code));
    }

    fn reset_code(&self) -> Option<ResetCode> {
        Flow::reset_code(self).map(masque::code)
    }
}
