'use strict';
// node amqp10_application.js QUEUE URL AUTHORITY: sends 1, 2, 3... one by one, again what was lost, and receives them; prints both.
// It ends when standard input has ended and all that was accepted is received.

const {Client, Policy} = require('amqp10');

const [queue, url, authority] = process.argv.slice(2);
// It connects again by itself; its links are attached again only where the policy says so.
const reattach = {retries: 10, strategy: 'fibonacci', forever: true};
const policy = {
    connect: {
        // Its documentation has sslOptions beside these options; it reads them only here.
        options: {idleTimeout: 2000, sslOptions: authority && {caFile: authority, rejectUnauthorized: true}}
    },
    senderLink: {reattach: reattach}, receiverLink: {reattach: reattach}
};
const accepted = new Set();
const received = new Set();
let stopping = false;
process.stdin.on('end', () => { stopping = true; }).resume();

function say(event) {
    process.stdout.write(JSON.stringify(event) + '\n');
}

function pause() {
    return new Promise(resolve => setTimeout(resolve, 10));
}

async function main() {
    const client = new Client(Policy.merge(policy, Policy.Default));
    client.on('connection:opened', () => say({event: 'open'}));
    await client.connect(url);
    const sender = await client.createSender(queue);
    const receiver = await client.createReceiver(queue);
    receiver.on('message', message => {
        received.add(message.body);
        say({event: 'received', number: message.body});
    });
    for (let number = 1; !stopping; await pause()) {
        try {
            await sender.send(number);
            accepted.add(number);
            say({event: 'accepted', number: number++});
        } catch (error) {
            say({event: 'again', number: number, error: error.message});
        }
    }
    while ([...accepted].some(number => !received.has(number))) await pause();
    process.exit(0);
}

main();
