package auth

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// serve has a handler see a request, and returns what it sees.
func serve(wrap func(http.Handler) http.Handler, r *http.Request) (caller user.Info, seen *http.Request) {
	wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { caller, seen = Of(r.Context()), r })).
		ServeHTTP(httptest.NewRecorder(), r)
	return caller, seen
}

func request(headers ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	for i := 0; i < len(headers); i += 2 {
		r.Header[headers[i]] = append(r.Header[headers[i]], headers[i+1]) // as it is written
	}
	return r
}

var forged = []string{
	"X-Remote-User", "admin", "X-Remote-Group", "system:masters", "X-Remote-Uid", "1", "X-Remote-Extra-Scopes", "all",
	"x-remote-user", "admin",
	"X-Remote-", "x", "X-REMOTE-GROUP", "system:masters",
}

func none(t *testing.T, h http.Header) {
	t.Helper()
	for name := range h {
		assert.False(t, strings.HasPrefix(strings.ToLower(name), "x-remote-"), name)
	}
}

// Who comes by plain HTTP may do everything, whoever he says he is.
func TestInsecure(t *testing.T) {
	caller, seen := serve(Insecure, request(forged...))
	assert.True(t, Trusted(caller))
	assert.True(t, ledger.MayAll(caller.GetName()))
	none(t, seen.Header)
	assert.True(t, Trusted(Of(Inside(t.Context()))))
	assert.False(t, Trusted(Of(t.Context())), "who has not been asked is nobody")
	assert.Equal(t, user.Anonymous, Name(t.Context()))
}

// A caller arrives at the other server as it was.
func TestTellAndForwarded(t *testing.T) {
	for name, caller := range map[string]*user.DefaultInfo{
		"all": {
			Name: "somebody", UID: "u", Groups: []string{"a", "b"},
			Extra: map[string][]string{"example.com/%scopes": {"x", "y"}},
		},
		"name only": {Name: "ümlaut"},
	} {
		t.Run(name, func(t *testing.T) {
			out := request(forged...)
			Tell(with(request(), caller).Context(), out)
			got, seen := serve(Forwarded, out)
			none(t, seen.Header)
			assert.Equal(t, caller.Name, got.GetName())
			assert.Equal(t, caller.UID, got.GetUID())
			assert.ElementsMatch(t, caller.Groups, got.GetGroups())
			for key, values := range caller.Extra {
				assert.Equal(t, values, got.GetExtra()[key])
			}
		})
	}
	out := request(forged...)
	Tell(request().Context(), out)
	none(t, out.Header)
	got, _ := serve(Forwarded, out)
	assert.Equal(t, anonymous, got)
}

// FuzzForwarded: whatever headers another server sends, none of them reaches a handler, and what was sent of the caller
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

func TestShare(t *testing.T) {
	r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	r.RemoteAddr = "192.0.2.7:1234"
	assert.Equal(t, "address 192.0.2.7", Share(r))
	assert.Equal(t, "address 192.0.2.7", Share(with(r, trusted)), "by plain HTTP nobody says who they are")
	assert.Equal(t, "user address 192.0.2.7", Share(with(r, &user.DefaultInfo{Name: "address 192.0.2.7"})))
	r.RemoteAddr = "[2001:db8:1:2:3:4:5:6]:1234"
	assert.Equal(t, "address 2001:db8:1:2::/64", Share(r), "the rest of it is the other side's to choose")
	r.RemoteAddr = "[::ffff:192.0.2.7]:1234"
	assert.Equal(t, "address ::ffff:192.0.2.7", Share(r))
}
