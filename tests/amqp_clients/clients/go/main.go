// What go-amqp sees of a broker: one JSON line for each case, as the programs beside this one write.
//
//	client HOST PORT USER PASSWORD PLAIN-QUEUE
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/Azure/go-amqp"
)

const (
	wait   = 15 * time.Second
	absent = 300 * time.Millisecond
)

var (
	address, user, password, plain string
	numbers                        int
)

func name() string {
	numbers++
	return fmt.Sprintf("go_%d_%d", time.Now().UnixNano(), numbers)
}

func bounded() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), wait)
}

func connect(secret string) (*amqp.Conn, error) {
	ctx, cancel := bounded()
	defer cancel()
	return amqp.Dial(ctx, address, &amqp.ConnOptions{SASLType: amqp.SASLTypePlain(user, secret)})
}

// client is one connection with one session.
type client struct {
	connection *amqp.Conn
	session    *amqp.Session
}

func opened() *client {
	connection, err := connect(password)
	check(err)
	ctx, cancel := bounded()
	defer cancel()
	session, err := connection.NewSession(ctx, nil)
	check(err)
	return &client{connection, session}
}

func (c *client) close() { _ = c.connection.Close() }

func (c *client) sender(to string, options *amqp.SenderOptions) *amqp.Sender {
	ctx, cancel := bounded()
	defer cancel()
	if options == nil {
		options = &amqp.SenderOptions{TargetCapabilities: []string{"queue"}}
	}
	sender, err := c.session.NewSender(ctx, to, options)
	check(err)
	return sender
}

func (c *client) tryReceiver(from string, options *amqp.ReceiverOptions) (*amqp.Receiver, error) {
	ctx, cancel := bounded()
	defer cancel()
	if options == nil {
		options = &amqp.ReceiverOptions{}
	}
	if options.Credit == 0 {
		options.Credit = -1
	}
	if !options.DynamicAddress && from != plain {
		options.SourceCapabilities = []string{"queue"}
	}
	return c.session.NewReceiver(ctx, from, options)
}

func (c *client) receiver(from string, options *amqp.ReceiverOptions) *amqp.Receiver {
	receiver, err := c.tryReceiver(from, options)
	check(err)
	return receiver
}

func send(sender *amqp.Sender, message *amqp.Message) {
	ctx, cancel := bounded()
	defer cancel()
	check(sender.Send(ctx, message, nil))
}

func next(receiver *amqp.Receiver) *amqp.Message {
	ctx, cancel := bounded()
	defer cancel()
	_ = receiver.IssueCredit(1) // A receiver that gives credit by itself says that it does.
	message, err := receiver.Receive(ctx, nil)
	check(err)
	return message
}

func nothing(receiver *amqp.Receiver) {
	ctx, cancel := context.WithTimeout(context.Background(), absent)
	defer cancel()
	_ = receiver.IssueCredit(1)
	message, err := receiver.Receive(ctx, nil)
	if !errors.Is(err, context.DeadlineExceeded) {
		fail("a message has come: %v (%v)", message, err)
	}
}

func accept(receiver *amqp.Receiver, message *amqp.Message) {
	ctx, cancel := bounded()
	defer cancel()
	check(receiver.AcceptMessage(ctx, message))
}

func fail(format string, values ...any) { panic(fmt.Errorf(format, values...)) }

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func equal(expected, found any) {
	if !reflect.DeepEqual(expected, found) {
		fail("expected %.200v, found %.200v", expected, found)
	}
}

func text(body string) *amqp.Message { return &amqp.Message{Value: body} }

func count(message *amqp.Message) uint32 {
	if message.Header == nil {
		return 0
	}
	return message.Header.DeliveryCount
}

var cases = []struct {
	title string
	body  func()
}{
	{"connect", func() { opened().close() }},
	{"refused", func() {
		connection, err := connect("wrong")
		if err == nil {
			_ = connection.Close()
			fail("a wrong password was taken")
		}
	}},
	{"plain_address", func() {
		c := opened()
		defer c.close()
		send(c.sender(plain, &amqp.SenderOptions{}), text("by its name"))
		receiver := c.receiver(plain, nil)
		message := next(receiver)
		equal("by its name", message.Value)
		accept(receiver, message)
	}},
	{"send_and_receive", func() {
		c := opened()
		defer c.close()
		to := name()
		sender := c.sender(to, nil)
		for number := 0; number < 20; number++ {
			message := text(fmt.Sprint("m", number))
			message.Properties = &amqp.MessageProperties{MessageID: fmt.Sprint("id-", number)}
			message.ApplicationProperties = map[string]any{"number": int32(number)}
			send(sender, message)
		}
		receiver := c.receiver(to, nil)
		for number := 0; number < 20; number++ {
			message := next(receiver)
			equal(fmt.Sprint("m", number), message.Value)
			equal(fmt.Sprint("id-", number), message.Properties.MessageID)
			equal(int32(number), message.ApplicationProperties["number"])
			accept(receiver, message)
		}
		nothing(receiver)
	}},
	{"credit_by_itself", func() {
		c := opened()
		defer c.close()
		to := name()
		sender := c.sender(to, nil)
		for number := 0; number < 50; number++ {
			send(sender, text(fmt.Sprint(number)))
		}
		receiver := c.receiver(to, &amqp.ReceiverOptions{Credit: 7})
		for number := 0; number < 50; number++ {
			message := next(receiver)
			equal(fmt.Sprint(number), message.Value)
			accept(receiver, message)
		}
	}},
	{"bodies", func() {
		c := opened()
		defer c.close()
		to := name()
		sender, receiver := c.sender(to, nil), c.receiver(to, nil)
		for _, body := range []any{"text – Größe", int64(1) << 40, true, map[string]any{"k": "v"}, []any{"a", 1.5},
			strings.Repeat("x", 2_000_000)} {
			send(sender, &amqp.Message{Value: body})
			message := next(receiver)
			equal(body, message.Value)
			accept(receiver, message)
		}
		send(sender, amqp.NewMessage([]byte{0, 1, 255}))
		message := next(receiver)
		equal([]byte{0, 1, 255}, message.GetData())
		accept(receiver, message)
	}},
	{"headers", func() {
		c := opened()
		defer c.close()
		to := name()
		subject, group, answers, kind := "s", "g", "answers", "text/x"
		sent := text("h")
		sent.Header = &amqp.MessageHeader{Durable: true, Priority: 7, TTL: time.Minute}
		sent.Properties = &amqp.MessageProperties{Subject: &subject, GroupID: &group, ReplyTo: &answers,
			ContentType: &kind, CorrelationID: "c", UserID: []byte(user)}
		sent.ApplicationProperties = map[string]any{"text": "t", "flag": true, "big": uint64(1) << 63}
		sent.Annotations = amqp.Annotations{"x-opt-of-ours": "kept"}
		send(c.sender(to, nil), sent)
		receiver := c.receiver(to, nil)
		found := next(receiver)
		accept(receiver, found)
		equal([]any{"s", "g", "answers", "text/x", "c"}, []any{*found.Properties.Subject, *found.Properties.GroupID,
			*found.Properties.ReplyTo, *found.Properties.ContentType, found.Properties.CorrelationID})
		equal([]any{true, uint8(7)}, []any{found.Header.Durable, found.Header.Priority})
		if found.Header.TTL <= 0 || found.Header.TTL > time.Minute {
			fail("ttl %v", found.Header.TTL)
		}
		equal(sent.ApplicationProperties, found.ApplicationProperties)
		equal("kept", found.Annotations["x-opt-of-ours"])
	}},
	{"accepted_is_gone", func() {
		c := opened()
		to := name()
		send(c.sender(to, nil), text("1"))
		receiver := c.receiver(to, nil)
		accept(receiver, next(receiver))
		c.close()
		again := opened()
		defer again.close()
		nothing(again.receiver(to, nil))
	}},
	{"released_comes_again", func() {
		c := opened()
		defer c.close()
		to := name()
		send(c.sender(to, nil), text("1"))
		receiver := c.receiver(to, nil)
		ctx, cancel := bounded()
		defer cancel()
		check(receiver.ReleaseMessage(ctx, next(receiver)))
		message := next(receiver)
		equal(uint32(0), count(message))
		accept(receiver, message)
		nothing(receiver)
	}},
	{"modified_is_counted", func() {
		c := opened()
		defer c.close()
		to := name()
		send(c.sender(to, nil), text("1"))
		receiver := c.receiver(to, nil)
		ctx, cancel := bounded()
		defer cancel()
		for number := uint32(0); number < 3; number++ {
			message := next(receiver)
			equal(number, count(message))
			check(receiver.ModifyMessage(ctx, message, &amqp.ModifyMessageOptions{DeliveryFailed: true}))
		}
		accept(receiver, next(receiver))
		nothing(receiver)
	}},
	{"rejected_is_gone", func() {
		c := opened()
		defer c.close()
		to := name()
		sender := c.sender(to, nil)
		send(sender, text("bad"))
		send(sender, text("good"))
		receiver := c.receiver(to, nil)
		ctx, cancel := bounded()
		defer cancel()
		check(receiver.RejectMessage(ctx, next(receiver), &amqp.Error{Condition: "ours:bad"}))
		message := next(receiver)
		equal("good", message.Value)
		accept(receiver, message)
		nothing(receiver)
	}},
	{"filters", func() {
		c := opened()
		defer c.close()
		to := name()
		sender := c.sender(to, nil)
		for number := int32(0); number < 6; number++ {
			message := text(fmt.Sprint("m", number))
			message.ApplicationProperties = map[string]any{"n": number}
			send(sender, message)
		}
		receiver := c.receiver(to, &amqp.ReceiverOptions{Filters: []amqp.LinkFilter{amqp.NewSelectorFilter("n >= 4")}})
		for _, body := range []string{"m4", "m5"} {
			message := next(receiver)
			equal(body, message.Value)
			accept(receiver, message)
		}
		nothing(receiver)
	}},
	{"invalid_filter", func() {
		c := opened()
		defer c.close()
		receiver, err := c.tryReceiver(name(), &amqp.ReceiverOptions{Filters: []amqp.LinkFilter{amqp.NewSelectorFilter("= n")}})
		if err == nil { // The refusal may come after the answer.
			ctx, cancel := bounded()
			defer cancel()
			_, err = receiver.Receive(ctx, nil)
		}
		if !strings.Contains(fmt.Sprint(err), "amqp:invalid-field") {
			fail("it is %v", err)
		}
		to := name()
		send(c.sender(to, nil), text("on"))
	}},
	{"request_and_reply", func() {
		c, server := opened(), opened()
		defer c.close()
		defer server.close()
		to := name()
		replies := c.receiver("", &amqp.ReceiverOptions{DynamicAddress: true})
		reply := replies.Address()
		request := text("q")
		request.Properties = &amqp.MessageProperties{ReplyTo: &reply, CorrelationID: "c1"}
		send(c.sender(to, nil), request)
		requests := server.receiver(to, nil)
		found := next(requests)
		accept(requests, found)
		answer := text("a")
		answer.Properties = &amqp.MessageProperties{CorrelationID: found.Properties.CorrelationID}
		send(server.sender(*found.Properties.ReplyTo, &amqp.SenderOptions{}), answer)
		got := next(replies)
		equal([]any{"a", "c1"}, []any{got.Value, got.Properties.CorrelationID})
		accept(replies, got)
	}},
	{"presettled", func() {
		c := opened()
		defer c.close()
		to := name()
		mode := amqp.SenderSettleModeSettled
		sender := c.sender(to, &amqp.SenderOptions{TargetCapabilities: []string{"queue"}, SettlementMode: &mode})
		for number := 0; number < 100; number++ {
			send(sender, text(fmt.Sprint(number)))
		}
		receiver := c.receiver(to, &amqp.ReceiverOptions{RequestedSenderSettleMode: &mode, Credit: 20})
		for number := 0; number < 100; number++ {
			equal(fmt.Sprint(number), next(receiver).Value)
		}
	}},
}

func run(body func()) (why error) {
	defer func() {
		if found := recover(); found != nil {
			why = fmt.Errorf("%v", found)
		}
	}()
	body()
	return nil
}

func main() {
	address = fmt.Sprintf("amqp://%s:%s", os.Args[1], os.Args[2])
	user, password, plain = os.Args[3], os.Args[4], os.Args[5]
	status := 0
	for _, one := range cases {
		began := time.Now()
		why := run(one.body)
		line := map[string]any{"case": "go." + one.title, "result": "passed", "seconds": time.Since(began).Seconds(), "why": nil}
		if why != nil {
			line["result"], line["why"], status = "failed", why.Error(), 1
		}
		_ = json.NewEncoder(os.Stdout).Encode(line)
	}
	os.Exit(status)
}
