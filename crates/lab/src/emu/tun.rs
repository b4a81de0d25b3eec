//! TUN devices: the points at which packets leave a kernel for an emulated link, and return from
//! it.
//!
//! A device is opened with the virtio-net header and segmentation offload, so that a kernel hands
//! over a burst of one flow as one frame (see [`super::offload`]). The wire forwards those frames
//! unchanged. The interfaces of the TUN crates do not allow that, so this module opens the device
//! directly.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use super::error::EmuError;

const PATH: &str = "/dev/net/tun";

/// Segmentation that a reader of this device performs: `TUN_F_*` of `linux/if_tun.h`, which the
/// libc crate lacks.
const TUN_F_CSUM: libc::c_uint = 0x01;
const TUN_F_TSO4: libc::c_uint = 0x02;
const TUN_F_TSO6: libc::c_uint = 0x04;
const TUN_F_USO4: libc::c_uint = 0x20;
const TUN_F_USO6: libc::c_uint = 0x40;

/// Checks that TUN devices are available.
pub fn probe() -> Result<(), EmuError> {
    open_device().map(drop)
}

/// Makes the TUN interface `name` in the calling thread's network namespace. The interface lives as
/// long as the returned descriptor, which is non-blocking.
pub fn create(host: &'static str, name: &str) -> Result<OwnedFd, EmuError> {
    let device = open_device()?;
    attach(&device, name).map_err(|source| EmuError::Configure {
        host,
        doing: format!("make the TUN device {name}"),
        source: source.into(),
    })?;
    Ok(device.into())
}

fn open_device() -> Result<File, EmuError> {
    OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(PATH).map_err(
        |error| match error.kind() {
            io::ErrorKind::PermissionDenied => EmuError::TunDenied(error),
            _ => EmuError::NoTun(error),
        },
    )
}

#[allow(unsafe_code)]
fn attach(device: &File, name: &str) -> io::Result<()> {
    // SAFETY: ifreq is a plain C structure for which all zeroes is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let room = libc::IFNAMSIZ - 1;
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes().take(room)) {
        *to = from as libc::c_char;
    }
    let flags = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    let tcp = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6;
    let all = tcp | TUN_F_USO4 | TUN_F_USO6;
    // SAFETY: the descriptor is open for the whole call. TUNSETIFF reads and writes one ifreq,
    // which `request` is; TUNSETOFFLOAD takes its argument by value.
    unsafe {
        done(libc::ioctl(device.as_raw_fd(), libc::TUNSETIFF as _, &mut request))?;
        // Kernels before 6.2 do not support UDP segmentation offload.
        done(libc::ioctl(device.as_raw_fd(), libc::TUNSETOFFLOAD as _, libc::c_ulong::from(all)))
            .or_else(|_| {
                let tcp = libc::c_ulong::from(tcp);
                done(libc::ioctl(device.as_raw_fd(), libc::TUNSETOFFLOAD as _, tcp))
            })
    }
}

fn done(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
