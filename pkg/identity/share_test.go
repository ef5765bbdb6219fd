package identity

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apiserver/pkg/authentication/user"
)

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
