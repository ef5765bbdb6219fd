package forward

import (
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/http/auth"
)

// asPeer speaks to a server's peer listener with a key, and says that the caller is somebody.
func asPeer(t *testing.T, key *Key, to *server) reply {
	config := &tls.Config{InsecureSkipVerify: true}
	if key != nil {
		config.Certificates = []tls.Certificate{key.certificate}
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
	defer client.CloseIdleConnections()
	request, err := http.NewRequest(http.MethodPost, to.peer.URL+"/x", http.NoBody)
	require.NoError(t, err)
	request.Header.Set("X-Remote-User", "somebody")
	response, err := client.Do(request)
	if err != nil {
		return reply{}
	}
	require.NoError(t, response.Body.Close())
	return reply{status: response.StatusCode, header: response.Header, closes: response.Close}
}

// Only a server that is listed now is believed.
func TestWhoIsAPeer(t *testing.T) {
	leader, follower := pair(t)
	said := ""
	leader.answer(func(_ http.ResponseWriter, r *http.Request) { said = auth.Of(r.Context()).GetName() })
	accepted := asPeer(t, follower.Key(), leader)
	assert.Equal(t, http.StatusOK, accepted.status)
	assert.False(t, accepted.closes)
	assert.Equal(t, "somebody", said)
	asked := leader.asked.Load()

	namesake, err := newKey("follower") // with all that a certificate says, but for the key
	require.NoError(t, err)
	stolen := *follower.Key()
	stolen.certificate.PrivateKey = namesake.certificate.PrivateKey.(*ecdsa.PrivateKey)
	signed := signedBy(t, follower.Key(), namesake)
	for name, key := range map[string]*Key{
		"none": nil, "a namesake": namesake, "a certificate without its key": &stolen,
		"one signed by a peer": signed,
	} {
		got := asPeer(t, key, leader)
		assert.NotEqual(t, http.StatusOK, got.status, name)
	}
	refused := asPeer(t, namesake, leader)
	assert.Equal(t, http.StatusForbidden, refused.status)
	assert.True(t, refused.closes, "a stranger keeps a connection")

	assert.Equal(t, asked, leader.asked.Load())
}

// A key counts as long as it is listed, over connections that are older, too.
func TestListedOnly(t *testing.T) {
	leader, follower := pair(t)
	key, err := newKey("by-hand")
	require.NoError(t, err)
	list := func(servers ...v1alpha1.LedgerServer) {
		leader.w.objects.Edit(func(term *v1alpha1.LedgerTerm) { term.Status.Servers = servers })
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{
		InsecureSkipVerify: true,
		Certificates:       []tls.Certificate{key.certificate},
	}, MaxConnsPerHost: 1}
	defer transport.CloseIdleConnections()
	status := func() int {
		request, err := http.NewRequest(http.MethodPost, leader.peer.URL+"/x", http.NoBody)
		require.NoError(t, err)
		return do(t, &http.Client{Transport: transport}, request).status
	}
	assert.Equal(t, http.StatusForbidden, status())
	list(v1alpha1.LedgerServer{Name: "by-hand", PublicKey: key.Public})
	assert.Eventually(t, func() bool { return status() == http.StatusOK }, time.Minute, 10*time.Millisecond)
	list()
	assert.Eventually(t, func() bool { return status() == http.StatusForbidden }, time.Minute, 10*time.Millisecond)
	leader.knows(follower) // it sees that it is not listed, and writes its entry again
}

// signedBy is a certificate for the key of another that a peer vouches for.
func signedBy(t *testing.T, peer, other *Key) *Key {
	template := *other.certificate.Leaf
	der, err := x509.CreateCertificate(rand.Reader, &template, peer.certificate.Leaf, other.certificate.Leaf.PublicKey,
		peer.certificate.PrivateKey)
	require.NoError(t, err)
	return &Key{certificate: tls.Certificate{
		Certificate: [][]byte{der, peer.certificate.Certificate[0]},
		PrivateKey:  other.certificate.PrivateKey,
	}}
}

// A leader of an earlier term is nobody to send to, whatever of it is shown again.
func TestEarlierLeader(t *testing.T) {
	leader, follower := pair(t)
	assert.Equal(t, "leader", follower.post("/x", "").body)
	next := leader.w.server("next")
	next.lead()
	leader.knows(next)
	// It still decides, as far as it knows, and answers at the address of the new one.
	leader.w.raise(func(spec *v1alpha1.LedgerTermSpec) { spec.URL = leader.peer.URL })
	follower.upToDate()
	follower.hold = 500 * time.Millisecond
	got := follower.post("/x", "")
	assert.Equal(t, http.StatusServiceUnavailable, got.status)
	assert.Eventually(t, func() bool {
		return strings.Contains(follower.Why(), "it does not have the key of the server that decides")
	}, time.Minute, 5*time.Millisecond)
	assert.Equal(t, int32(1), leader.asked.Load())

	follower.servers.observe(&v1alpha1.LedgerTerm{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.LedgerTermName},
		Spec:       v1alpha1.LedgerTermSpec{Term: 1, Leader: "leader", URL: leader.peer.URL, PublicKey: leader.Key().Public},
	})
	to, _ := follower.servers.known()
	assert.Equal(t, int64(3), to.term, "what a watch tells late changes nothing")
}

// What was passed on once is not passed on again.
func TestNoLoop(t *testing.T) {
	leader, follower := pair(t)
	leader.decides.Store(false)
	follower.hold = 300 * time.Millisecond
	got := asPeer(t, follower.Key(), leader)
	assert.Equal(t, http.StatusServiceUnavailable, got.status)
	assert.NotEmpty(t, got.header.Get("Retry-After"))
	assert.Equal(t, http.StatusServiceUnavailable, follower.post("/x", "").status)
	assert.Zero(t, leader.asked.Load()+follower.asked.Load())
}

// servers is what a server knows of others, without one that runs.
func (w *world) servers(name string, leads func() string, moved func()) *servers {
	key, err := newKey(name)
	require.NoError(w.t, err)
	return newServers(&Options{Name: name, Network: &net.Dialer{}, Client: w.objects, Leads: leads, Moved: moved}, key)
}

func leads() string { return "" }

// The leader forgets servers whose entries nobody renews, by its own clock. The others leave that to it.
func TestEntriesExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.raise(func(*v1alpha1.LedgerTermSpec) {})
		why := ""
		old, leader := w.servers("old", leads, func() {}), w.servers("leader", func() string { return why }, func() {})
		write := func(s *servers) { require.NoError(t, s.writeEntry(context.Background())) }
		assertNames := func(want ...string) {
			t.Helper()
			var names []string
			for _, one := range w.objects.Term().Status.Servers {
				names = append(names, one.Name)
			}
			assert.Equal(t, want, names)
		}
		write(old)
		write(leader)
		write(leader)
		assertNames("old", "leader")
		<-time.After(forgetAfter + time.Second)
		write(old) // it runs
		write(leader)
		assertNames("old", "leader")
		<-time.After(forgetAfter + time.Second)
		why = "another does"
		write(leader)
		assertNames("old", "leader")
		why = ""
		write(leader)
		assertNames("leader")
	})
}

// An entry that was there before is no sign of a server that lives; one that comes, or is renewed, is.
func TestStandBy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newWorld(t).servers("own", leads, func() {})
		told := map[string]time.Time{}
		observe := func(name string, renewed time.Time) {
			told[name] = renewed
			term := &v1alpha1.LedgerTerm{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.LedgerTermName}}
			for name, at := range told {
				term.Status.Servers = append(term.Status.Servers, v1alpha1.LedgerServer{
					Name:    name,
					Renewed: metav1.NewMicroTime(at),
				})
			}
			s.observe(term)
		}
		begun := time.Now()
		observe("gone", begun)
		assert.False(t, s.standBy())
		observe("own", begun)
		observe("own", begun.Add(time.Second))
		assert.False(t, s.standBy(), "it is this server")
		observe("another", begun.Add(-time.Hour))
		assert.True(t, s.standBy(), "it has come")
		observe("own", begun.Add(2*time.Second))
		assert.True(t, s.standBy())
		<-time.After(forgetAfter)
		assert.False(t, s.standBy(), "it has not told of itself for long")
		observe("gone", begun.Add(time.Hour))
		assert.True(t, s.standBy(), "it was not gone")
		delete(told, "gone")
		observe("own", begun.Add(3*time.Second))
		assert.False(t, s.standBy())
	})
}

// Who leads is told at once when somebody else has a say in the term.
func TestMoved(t *testing.T) {
	moved := 0
	s := newWorld(t).servers("own", leads, func() { moved++ })
	term := &v1alpha1.LedgerTerm{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.LedgerTermName},
		Spec:       v1alpha1.LedgerTermSpec{Term: 7},
	}
	observe := func(number int64) {
		term.Spec.Term = number
		s.observe(term)
	}
	for _, tc := range []struct {
		number int64
		want   int
	}{{7, 1}, {7, 1}, {8, 2}, {6, 3}, {8, 3}} {
		observe(tc.number)
		assert.Equal(t, tc.want, moved, tc.number)
	}
	s.gone(term)
	assert.Equal(t, 4, moved)
}

// FuzzTerm: whatever the LedgerTerm says, one after the other, the leader that is known is of the latest term, and has
// an address that can be asked or a reason why not.
func FuzzTerm(f *testing.F) {
	f.Add(`{"spec":{"term":1,"leader":"a","url":"https://127.0.0.1:1","publicKey":"k"}}`,
		`{"spec":{"term":2,"url":"http://x"},"status":{"servers":[{"name":"a","publicKey":"k"},{}]}}`)
	f.Add(`{"spec":{"term":-1,"url":"https://%zz"}}`,
		`{"spec":{"term":9223372036854775807,"url":"https://[::1%eth0]:99999/path?q#f"}}`)
	f.Add(`{}`, `{"spec":{"url":"//"},"status":{"servers":[{"name":"b","renewed":"9999-12-31T23:59:59.999999Z"}]}}`)
	key, err := newKey("self")
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, first, second string) {
		s := &servers{
			o: &Options{Name: "self", Moved: func() {}}, key: key, news: make(chan struct{}, 1), changed: make(chan struct{}),
		}
		defer s.forget()
		var latest *int64
		for _, state := range []string{first, second} {
			term := &v1alpha1.LedgerTerm{}
			if len(state) > 64<<10 || json.Unmarshal([]byte(state), term) != nil {
				return
			}
			term.Name = v1alpha1.LedgerTermName
			s.observe(term)
			if latest == nil || *latest < term.Spec.Term {
				latest = &term.Spec.Term
			}
			to, _ := s.known()
			require.NotNil(t, to)
			assert.Equal(t, *latest, to.term)
			_, failure := to.why()
			assert.True(t, to.url != nil || failure != nil)
			assert.LessOrEqual(t, len(s.keys), len(term.Status.Servers))
		}
	})
}
