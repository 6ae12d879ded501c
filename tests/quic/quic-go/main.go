// quic-go as a client of the lab's servers: handshake, 0-RTT with single-use tickets, migration.
//
// Started by `dwell-lab quic client`, which tells address, certificate and own addresses by the environment.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
)

const patience = 30 * time.Second

// The newest ticket, which is used once.
type tickets struct {
	lock  sync.Mutex
	kept  []*tls.ClientSessionState
	count int
}

func (t *tickets) Get(string) (*tls.ClientSessionState, bool) {
	t.lock.Lock()
	defer t.lock.Unlock()
	if len(t.kept) == 0 {
		return nil, false
	}
	newest := t.kept[len(t.kept)-1]
	t.kept = t.kept[:len(t.kept)-1]
	return newest, true
}

func (t *tickets) Put(_ string, state *tls.ClientSessionState) {
	t.lock.Lock()
	defer t.lock.Unlock()
	if state != nil {
		t.kept = append(t.kept, state)
		t.count++
	}
}

func (t *tickets) came() int {
	t.lock.Lock()
	defer t.lock.Unlock()
	return t.count
}

type client struct {
	server  *net.UDPAddr
	own     []string
	tls     *tls.Config
	tickets *tickets
}

func (c *client) transport(address string) (*quic.Transport, error) {
	socket, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.ParseIP(address)})
	if err != nil {
		return nil, err
	}
	return &quic.Transport{Conn: socket}, nil
}

func ask(stream *quic.Stream, length uint64, slow byte) error {
	request := binary.BigEndian.AppendUint64(make([]byte, 8), length)
	if _, err := stream.Write(append(request, slow)); err != nil {
		return err
	}
	return stream.Close()
}

// Who answered, and whether as 0-RTT data.
func (c *client) visit(ctx context.Context) (uint16, bool, error) {
	before := c.tickets.came()
	transport, err := c.transport(c.own[0])
	if err != nil {
		return 0, false, err
	}
	defer transport.Close()
	connection, err := transport.DialEarly(ctx, c.server, c.tls, nil)
	if err != nil {
		return 0, false, err
	}
	stream, err := connection.OpenStreamSync(ctx)
	if err != nil {
		return 0, false, err
	}
	if err := ask(stream, 10, 0); err != nil {
		return 0, false, err
	}
	answer, err := io.ReadAll(stream)
	if err != nil {
		return 0, false, err
	}
	if len(answer) != 12 {
		return 0, false, fmt.Errorf("an answer of %d bytes", len(answer))
	}
	for c.tickets.came() == before {
		if ctx.Err() != nil {
			return 0, false, errors.New("no ticket came")
		}
		time.Sleep(time.Millisecond)
	}
	used := connection.ConnectionState().Used0RTT
	connection.CloseWithError(0, "")
	return binary.BigEndian.Uint16(answer), used, nil
}

func (c *client) move(ctx context.Context) error {
	transport, err := c.transport(c.own[0])
	if err != nil {
		return err
	}
	connection, err := transport.DialEarly(ctx, c.server, c.tls, nil)
	if err != nil {
		return err
	}
	<-connection.HandshakeComplete()
	stream, err := connection.OpenStreamSync(ctx)
	if err != nil {
		return err
	}
	const length = 400_000
	if err := ask(stream, length, 1); err != nil {
		return err
	}
	part := make([]byte, 50_000)
	for _, address := range []string{c.own[1], c.own[2], c.own[0]} {
		if _, err := io.ReadFull(stream, part); err != nil {
			return err
		}
		next, err := c.transport(address)
		if err != nil {
			return err
		}
		path, err := connection.AddPath(next)
		if err != nil {
			return err
		}
		if err := path.Probe(ctx); err != nil {
			return fmt.Errorf("probe from %s: %w", address, err)
		}
		if err := path.Switch(); err != nil {
			return err
		}
	}
	rest, err := io.ReadAll(stream)
	if err != nil {
		return err
	}
	if got := 3*len(part) + len(rest); got != length+2 {
		return fmt.Errorf("an answer of %d bytes", got)
	}
	return connection.CloseWithError(0, "")
}

func run() error {
	certificate, err := os.ReadFile(os.Getenv("DWELL_QUIC_CERTIFICATE"))
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(certificate) {
		return errors.New("no certificate")
	}
	server, err := net.ResolveUDPAddr("udp4", os.Getenv("DWELL_QUIC_SERVER"))
	if err != nil {
		return err
	}
	tickets := &tickets{}
	c := &client{
		server:  server,
		own:     strings.Split(os.Getenv("DWELL_QUIC_OWN"), ","),
		tickets: tickets,
		tls: &tls.Config{
			RootCAs:            roots,
			ServerName:         os.Getenv("DWELL_QUIC_NAME"),
			NextProtos:         []string{"dwell-lab"},
			ClientSessionCache: tickets,
		},
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	first, used, err := c.visit(ctx)
	if err != nil {
		return err
	}
	if used {
		return errors.New("0-RTT without a ticket")
	}
	fmt.Printf("full handshake: server %d\n", first)
	for range 3 {
		again, used, err := c.visit(ctx)
		if err != nil {
			return err
		}
		if !used {
			return errors.New("0-RTT was refused")
		}
		if again != first {
			return errors.New("another server answered")
		}
		fmt.Printf("0-RTT: server %d\n", again)
	}
	if err := c.move(ctx); err != nil {
		return err
	}
	fmt.Println("3 moves in the middle of an answer: all of it came")
	return nil
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
