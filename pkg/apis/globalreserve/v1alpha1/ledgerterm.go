package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// LedgerTermName is the name of the one LedgerTerm of a cluster.
const LedgerTermName = "globalreserve"

// TermAnnotation is on every Binding and Reservation that a server writes: the term in which it
// decided. The API server merges a Binding's annotations into the pod, so a bound pod has it, too.
const TermAnnotation = "globalreserve.io/term"

// LedgerTerm says which server decides. Each leadership has a term, a number that only grows. A server
// raises it before it decides; from then on the ValidatingAdmissionPolicy globalreserve-fence, whose
// parameter this object is, has the API server refuse what was decided in an earlier term.
//
// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:printcolumn:name="Term",type=integer,JSONPath=`.spec.term`,description="The term that the cluster is in"
// +kubebuilder:printcolumn:name="Leader",type=string,JSONPath=`.spec.leader`,description="The server that decides in it"
// +kubebuilder:printcolumn:name="Since",type=date,JSONPath=`.spec.since`,description="When it began"
// +kubebuilder:printcolumn:name="URL",type=string,priority=1,JSONPath=`.spec.url`,description="Where the other servers reach the leader"
type LedgerTerm struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the term that the cluster is in.
	Spec LedgerTermSpec `json:"spec"`

	// Status lists the servers, whichever of them decides.
	// +optional
	Status LedgerTermStatus `json:"status,omitempty"`
}

// LedgerTermList is a list of LedgerTerms.
//
// +kubebuilder:object:root=true
type LedgerTermList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []LedgerTerm `json:"items"`
}

// LedgerTermSpec is one leadership.
type LedgerTermSpec struct {
	// Term is the number of the leadership.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:XValidation:rule="self >= oldSelf",message="a term only grows"
	Term int64 `json:"term"`

	// Leader is the identity under which the server holds the Lease.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	Leader string `json:"leader,omitempty"`

	// URL is where the other servers reach the leader. A leader without one can not be reached.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	URL string `json:"url,omitempty"`

	// PublicKey distinguishes the leader from anyone else who answers at its URL.
	// +optional
	PublicKey PublicKey `json:"publicKey,omitempty"`

	// Since is when the term began.
	// +optional
	Since metav1.Time `json:"since,omitempty"`
}

// PublicKey is the SHA-256 of a server's public key (its X.509 SubjectPublicKeyInfo), in hex. The server
// has the key in its memory only: it has another one after a restart.
//
// +kubebuilder:validation:Pattern=`^([0-9a-f]{64})?$`
type PublicKey string

// MaxServers is how many servers a LedgerTerm may list.
const MaxServers = 64

// LedgerTermStatus reports on all servers.
type LedgerTermStatus struct {
	// Servers may pass requests on to the leader, which believes what they say of who sent them. Each
	// server keeps its own entry, of at most 64; the leader removes those that are not renewed.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	// +optional
	Servers []LedgerServer `json:"servers,omitempty"`
}

// LedgerServer is one server.
type LedgerServer struct {
	// Name is its identity, as in spec.leader.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Name string `json:"name"`

	// PublicKey distinguishes requests of the server from those of anyone else.
	PublicKey PublicKey `json:"publicKey"`

	// Renewed changes while the server runs.
	Renewed metav1.MicroTime `json:"renewed"`
}
