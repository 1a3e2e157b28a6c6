"""Certificates for tests, which protect nothing: of an authority, and of a stranger to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from onceq.streams.net.tls import Certificates

if TYPE_CHECKING:
    from pathlib import Path

AUTHORITY: Final = """\
-----BEGIN CERTIFICATE-----
MIIBjjCCATWgAwIBAgIUWoFdYZnl94XLr1cYuNFoTVQnpjIwCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJYXV0aG9yaXR5MCAXDTI2MTEyNTIyMzU0N1oYDzIxMjYxMTAx
MjIzNTQ3WjAUMRIwEAYDVQQDDAlhdXRob3JpdHkwWTATBgcqhkjOPQIBBggqhkjO
PQMBBwNCAAQ+qyd5aEC3SZp09MoeKuWjfvgN+lacgZV3bzIVwnxO0qh0I9F+cF6j
zEWNaQOAiK4Xm39Uz1ng7D5xiPRIDXDeo2MwYTAdBgNVHQ4EFgQUNevXTQ/KTjhZ
Z6yx/YMv2XT9pzkwHwYDVR0jBBgwFoAUNevXTQ/KTjhZZ6yx/YMv2XT9pzkwDwYD
VR0TAQH/BAUwAwEB/zAOBgNVHQ8BAf8EBAMCAgQwCgYIKoZIzj0EAwIDRwAwRAIg
dGh+jYSBXaQx/2SGHM/eqMdl4GBDUjV3wGtEM4GM2d8CIH4vptcVlyzsYQfKYk56
L/sviJcaL/Gktd8ZUEcTg61w
-----END CERTIFICATE-----
"""
STORE: Final = """\
-----BEGIN CERTIFICATE-----
MIIBhjCCASygAwIBAgIUJBjREEOAS0bdwVI7OBc4jL7pBcQwCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJYXV0aG9yaXR5MCAXDTI2MTEyNTIyMzU0N1oYDzIxMjYxMTAx
MjIzNTQ3WjAQMQ4wDAYDVQQDDAVzdG9yZTBZMBMGByqGSM49AgEGCCqGSM49AwEH
A0IABMGZY1T6n+n9cmFJu6YVrtlpoBiIcleEmgVX4T6g/zg3L+Lw0V8zrqWXdwNk
vECbiRMtwSJbCQ/epBO+tM2Kq/ujXjBcMA8GA1UdEQQIMAaHBH8AAAEwCQYDVR0T
BAIwADAdBgNVHQ4EFgQUJoYR4AVGrUZ4vTV6x7FtguJ3ag0wHwYDVR0jBBgwFoAU
NevXTQ/KTjhZZ6yx/YMv2XT9pzkwCgYIKoZIzj0EAwIDSAAwRQIhAPlnwk9Nltz4
M1msI29Rkx0fvluo4BxOZd1P6B1dpuKeAiA/3XmDUR+7efX0RXS2ypBK+TiLJX9f
QxCEfh+wKW1TcQ==
-----END CERTIFICATE-----
"""
STORE_KEY: Final = """\
-----BEGIN EC PRIVATE KEY-----
MHcCAQEEIEppPelA/s2JoAxyhrMJc73EqQ8rYqYNIuKkUTjZeMUqoAoGCCqGSM49
AwEHoUQDQgAEwZljVPqf6f1yYUm7phWu2WmgGIhyV4SaBVfhPqD/ODcv4vDRXzOu
pZd3A2S8QJuJEy3BIlsJD96kE760zYqr+w==
-----END EC PRIVATE KEY-----
"""
STRANGER: Final = """\
-----BEGIN CERTIFICATE-----
MIIBkjCCATigAwIBAgIUX7EP+rYrYVaNEQJWGGfnAGAWv8wwCgYIKoZIzj0EAwIw
HTEbMBkGA1UEAwwSc3RyYW5nZXItYXV0aG9yaXR5MCAXDTI2MTEyNTIyMzU0N1oY
DzIxMjYxMTAxMjIzNTQ3WjATMREwDwYDVQQDDAhzdHJhbmdlcjBZMBMGByqGSM49
AgEGCCqGSM49AwEHA0IABLjxT4kH0+VBAFIEVgpAY7sayjuOCh4mVThwCA1H046V
8Nj9A72jvkEXcJkqghRTGsIQgC+BuYbnDmJjhoEWWrqjXjBcMA8GA1UdEQQIMAaH
BH8AAAEwCQYDVR0TBAIwADAdBgNVHQ4EFgQUc+q5MH4KXtwsULntR4o6JsbNKokw
HwYDVR0jBBgwFoAUqOdYhsVh09yx9nLNoWV9207HDWAwCgYIKoZIzj0EAwIDSAAw
RQIgQdRbLIx19P/pOczeal2Vb+0Q++7MzWDpCwB2md72HZ8CIQD0vfNpReRM30Iq
J5Cm4f6i9rTScGhG2eC4FYMblESZCw==
-----END CERTIFICATE-----
"""
STRANGER_KEY: Final = """\
-----BEGIN EC PRIVATE KEY-----
MHcCAQEEIDV1z+2pPvqICjeMuYDbTruA2bzVDvfYhE6UA5c/qYVMoAoGCCqGSM49
AwEHoUQDQgAEuPFPiQfT5UEAUgRWCkBjuxrKO44KHiZVOHAIDUfTjpXw2P0DvaO+
QRdwmSqCFFMawhCAL4G5hucOYmOGgRZaug==
-----END EC PRIVATE KEY-----
"""


def certificates(directory: Path, *, stranger: bool = False) -> Certificates:
    """The files of a store, or of one whom another authority certified."""
    texts = {
        "certificate": STRANGER if stranger else STORE,
        "key": STRANGER_KEY if stranger else STORE_KEY,
        "authority": AUTHORITY,
    }
    directory.mkdir(exist_ok=True)
    for name, text in texts.items():
        (directory / name).write_text(text)
    return Certificates(**{name: directory / name for name in texts})
