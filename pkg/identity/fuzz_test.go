package identity

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// FuzzForwarded: whatever headers another server sends, none of them reaches a handler, and what was told of the caller
// is what is known of it.
func FuzzForwarded(f *testing.F) {
	f.Add("alice", "1", "system:authenticated", "scopes", "all")
	f.Add("", "", "", "", "")
	f.Add("system:anonymous", "\x00", "a,b", "%zz", "\r\n")
	f.Fuzz(func(t *testing.T, name, uid, group, key, value string) {
		r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		for header, value := range map[string]string{
			"X-Remote-User": name, "X-Remote-Uid": uid, "X-Remote-Group": group, "X-Remote-Extra-" + key: value, "x-REMOTE-" +
				key: value,
		} {
			r.Header[header] = []string{value}
		}
		Forwarded(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			for header := range r.Header {
				assert.False(t, strings.HasPrefix(strings.ToLower(header), "x-remote-"), header)
			}
			if got := Of(r.Context()).GetName(); name != "" && got != name {
				assert.Equal(t, strings.TrimSpace(name), strings.TrimSpace(got))
			}
		})).ServeHTTP(httptest.NewRecorder(), r)
	})
}
