package forward

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
)

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
