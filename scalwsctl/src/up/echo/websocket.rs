//! A WebSocket that sends back what it gets (RFC 6455): just enough for an echo.

use std::io;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// From RFC 6455, section 1.3.
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// The longest frame that is echoed, in bytes.
const FRAME_LIMIT: u64 = 1024 * 1024;
const CLOSE: u8 = 0x8;
const PING: u8 = 0x9;
const PONG: u8 = 0xa;

/// The value of `Sec-WebSocket-Accept` for a client's key.
pub fn accept(key: &[u8]) -> String {
    // SHA-1 because the RFC says so; nothing is secret here.
    let mut digest = ring::digest::Context::new(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY);
    digest.update(key);
    digest.update(GUID);
    STANDARD.encode(digest.finish().as_ref())
}

/// Sends every frame back until the client closes.
///
/// # Errors
///
/// When the connection breaks, or a frame is too long or not masked.
pub async fn echo(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
    loop {
        let mut head = [0u8; 2];
        stream.read_exact(&mut head).await?;
        let length = match head[1] & 0x7f {
            126 => u64::from(stream.read_u16().await?),
            127 => stream.read_u64().await?,
            short => u64::from(short),
        };
        if head[1] & 0x80 == 0 || length > FRAME_LIMIT {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut mask = [0u8; 4];
        stream.read_exact(&mut mask).await?;
        let mut payload = vec![0; usize::try_from(length).map_err(io::Error::other)?];
        stream.read_exact(&mut payload).await?;
        for (byte, key) in payload.iter_mut().zip(mask.iter().cycle()) {
            *byte ^= key;
        }
        let opcode = match head[0] & 0x0f {
            PING => PONG,
            PONG => continue,
            other => other,
        };
        stream.write_all(&frame(head[0] & 0x80 | opcode, &payload)?).await?;
        stream.flush().await?;
        if opcode == CLOSE {
            return stream.shutdown().await;
        }
    }
}

fn frame(first: u8, payload: &[u8]) -> io::Result<Vec<u8>> {
    let mut out = vec![first];
    match payload.len() {
        short @ 0..126 => out.push(u8::try_from(short).map_err(io::Error::other)?),
        medium @ 126..0x1_0000 => {
            out.push(126);
            out.extend(u16::try_from(medium).map_err(io::Error::other)?.to_be_bytes());
        }
        long => {
            out.push(127);
            out.extend(u64::try_from(long).map_err(io::Error::other)?.to_be_bytes());
        }
    }
    out.extend_from_slice(payload);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_the_rfc_gives_the_answer_of_the_rfc() {
        assert_eq!(accept(b"dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[tokio::test]
    async fn frames_come_back_unmasked_and_close_ends() {
        let (mut client, server) = tokio::io::duplex(1024);
        let echoing = tokio::spawn(echo(server));
        // "Hello" masked, the example of RFC 6455, section 5.7; then close.
        client.write_all(&[0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58]).await.unwrap();
        client.write_all(&[0x88, 0x80, 1, 2, 3, 4]).await.unwrap();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).await.unwrap();
        assert_eq!(answer, b"\x81\x05Hello\x88\x00");
        echoing.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_frame_that_is_too_long_ends_the_connection() {
        let (mut client, server) = tokio::io::duplex(1024);
        client.write_all(&[0x82, 0xff, 0, 0, 0, 0, 0xff, 0, 0, 0]).await.unwrap();
        assert!(echo(server).await.is_err());
    }
}
