// Package admission tests the admission webhook on the real control plane: the API server asks a GlobalReserve server,
// over TLS and with the webhook configuration of manifests/admission, before it binds what other schedulers send.
//
// It builds nothing: `make build` has to have made bin/globalreserve, or GLOBALRESERVE_BINARY names another one.
package admission
