package client

import (
	"encoding/json"
	"net/http"
	"net/http/httputil"

	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// Proxy returns a handler that passes requests on to the server, with this client's certificate, and its token where
// the request has none. Nothing is tried again. Its user decides which requests it receives.
func (c *Client) Proxy() http.Handler {
	return &httputil.ReverseProxy{
		Transport:     c.http.Transport,
		FlushInterval: -1, // a watch goes on, and each event is to come at once
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(c.base)
			p.Out.Header.Del("Cookie") // of other programs on this host
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadGateway)
			unavailable := &reserver.UnavailableError{Err: err}
			_ = json.NewEncoder(w).Encode(map[string]any{"Error": unavailable.Error(), "Status": http.StatusBadGateway})
		},
	}
}
