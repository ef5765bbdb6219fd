package app

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"k8s.io/client-go/kubernetes/fake"
)

// What one address sends is bounded where others can reach the port. On loopback all are one, and nobody is refused.
func TestPaceOfPlainHTTP(t *testing.T) {
	for address, bounded := range map[string]bool{"127.0.0.1": false, "0.0.0.0": true} {
		t.Run(address, func(t *testing.T) {
			o := testOptions()
			o.BindAddress, o.AllowInsecureHTTP = address, true
			a := startApp(t, o, fake.NewClientset(testNode("a")))
			refused := 0
			ask := func(from string) int {
				r := httptest.NewRequest(http.MethodGet, "/livez", http.NoBody)
				r.RemoteAddr = from + ":1"
				w := httptest.NewRecorder()
				a.server.server.Handler.ServeHTTP(w, r)
				return w.Code
			}
			synctest.Test(t, func(*testing.T) { // so in no time, and more than one may send at once
				for range 20_000 {
					if ask("192.0.2.1") == http.StatusTooManyRequests {
						refused++
					}
				}
			})
			assert.Equal(t, bounded, refused > 0, refused)
			assert.Equal(t, http.StatusOK, ask("192.0.2.2"))
			_, metrics := get(t, a, "/metrics")
			assert.Equal(t, !bounded, strings.Contains(metrics, `globalreserve_refused_requests_total{reason="Rate"} 0`+"\n"))
		})
	}
}
